"""What rules mean, as data: rehearsals of batches, explanations, costs, differences between rules, graphs."""
