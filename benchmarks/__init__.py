"""What the engine costs, beside what one would write instead: `python -m benchmarks`, or `make bench`.

Units and calls are exact (MiniStack's consumed capacity); times are ratios within one run, because machines are noisy.
"""
