// Uses the module of the rules in `test_types_reject_mistakes`. Each line after @ts-expect-error does not compile.
import * as access from "./bikes.js";

export async function roundTrip(table: access.Table, bike: access.Bike): Promise<unknown> {
  const { bikeId, no } = access.bikeKeyVariables(bike);
  const read: access.Bike | undefined = await access.bikeKey_(table, { bikeId, no });
  return read?.status;
}

export function made(): unknown[] {
  const item = access.bikeItem({ bikeId: "b", no: 7n }, { status: "free", price: 3n, colour: "red" });
  return [item, access.bikeKeyVariables(item), access.bikeKey(access.bikeKeyVariables(item))];
}

export function mistakes(): unknown[] {
  return [
    // @ts-expect-error: price is required
    access.bikeItem({ bikeId: "b", no: 7 }, { status: "free" }),
    // @ts-expect-error: price is a number
    access.bikeItem({ bikeId: "b", no: 7 }, { status: "free", price: "3" }),
    // @ts-expect-error: no is missing
    access.bikeKey({ bikeId: "b" }),
    // @ts-expect-error: no is a number
    access.bikeKey({ bikeId: "b", no: "7" }),
    // @ts-expect-error: the key has no variable colour
    access.bikeKey({ bikeId: "b", no: 7, colour: "red" }),
    // @ts-expect-error: the key has no variable colour
    access.bikeItem({ bikeId: "b", no: 7, colour: "red" }, { status: "free", price: 3 }),
    // @ts-expect-error: nor has what is read from it
    access.bikeKeyVariables({}).colour,
  ];
}
