// The helpers that generated TypeScript modules contain. Each module has only those that its functions use, so each part of
// this file is one declaration, and parts are separated by one empty line.

import {
  GetCommand,
  NumberValue,
  QueryCommand,
  type DynamoDBDocumentClient,
} from "@aws-sdk/lib-dynamodb";

/** A table, and the client to read it with. */
export interface Table {
  client: DynamoDBDocumentClient;
  name: string;
}

/** An item as the document client returns it. */
export type Item = Record<string, any>;

/** A number as the document client returns it, by its options. */
export type Numeric = number | bigint | NumberValue;

export type Scalar = string | Numeric;

const GUARD = "~";

const HIGHEST = "\u{10ffff}";

const BEGINNING =
  /^(\d{4})(?:-?(0[1-9]|1[0-2])(?:-?([0-3]\d)(?:[T ]([0-2]\d)(?::?([0-5]\d)(?::?([0-5]\d)(?:[.,]\d+)?)?)?)?)?)?$/;

const ISO =
  /^(\d{4})-?(\d\d)-?(\d\d)(?:[T ](\d\d):?(\d\d)(?::?(\d\d)(?:[.,](\d+))?)?(?:Z|([+-])(\d\d):?(\d\d)?)?)?$/;

const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

const DIGITS: Record<string, number> = { Y: 4, G: 4, j: 3, f: 6, u: 1 };

/** Returns an item without the attributes in which rules keep their state. */
function withoutGuards(item: Item): Item {
  return Object.fromEntries(
    Object.entries(item).filter(([name]) => !name.startsWith(GUARD)),
  );
}

/** Returns attributes of an item: those that it has. */
function pick(item: Item, ...names: string[]): Item {
  return Object.fromEntries(
    names.filter((name) => name in item).map((name) => [name, item[name]]),
  );
}

/** Returns values of an item by new names: those that it has. */
function valuesAt(item: Item, paths: Record<string, string[]>): Item {
  return Object.fromEntries(
    Object.entries(paths)
      .map(([name, path]) => [name, valueAt(item, ...path)])
      .filter(([, value]) => value !== undefined),
  );
}

/** Returns the variables in the key of an item, undefined if its key has another form. */
function keyVariables<T = Item>(
  item: Item,
  key: Record<string, RegExp>,
): T | undefined {
  const variables: Item = {};
  for (const [name, pattern] of Object.entries(key)) {
    const match = pattern.exec(textOf(item[name]));
    if (match === null) return undefined;
    for (const [variable, text] of Object.entries(match.groups ?? {})) {
      variables[variable] = isNumeric(item[name]) ? item[name] : text;
    }
  }
  return variables as T;
}

/** Returns the variables in the key of an item. Throws RangeError if its key has another form. */
function variablesOf<T>(item: Item, key: Record<string, RegExp>): T {
  const variables = keyVariables<T>(item, key);
  if (variables === undefined) throw new RangeError("the key has another form");
  return variables;
}

/** Returns the value at a path, undefined if there is none. */
function valueAt(item: Item, ...path: string[]): any {
  let value: any = item;
  for (const name of path) {
    if (typeof value !== "object" || value === null) return undefined;
    const index = Array.isArray(value) && /^\d+$/.test(name) ? Number(name) : name;
    if (!Object.hasOwn(value, index)) return undefined;
    value = value[index];
  }
  return value;
}

function isNumeric(value: unknown): value is Numeric {
  return (
    typeof value === "number" ||
    typeof value === "bigint" ||
    value instanceof NumberValue
  );
}

/** Returns a value as keys have it: a number without exponent or trailing zeros. */
function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  if (!isNumeric(value)) throw new RangeError("neither a text nor a number");
  const written = value instanceof NumberValue ? value.value : String(value);
  const match = /^([+-]?)(\d*)\.?(\d*)(?:e([+-]?\d+))?$/i.exec(written);
  if (match === null) throw new RangeError(`not a number: ${written}`);
  const [, sign, whole = "", fraction = "", exponent = "0"] = match;
  const zeros = Math.max(0, -(whole.length + Number(exponent)));
  const digits = "0".repeat(zeros) + whole + fraction;
  const point = zeros + whole.length + Number(exponent);
  const integer = digits.slice(0, point).padEnd(point, "0").replace(/^0+/, "") || "0";
  const rest = digits.slice(point).replace(/0+$/, "");
  const text = rest ? `${integer}.${rest}` : integer;
  return sign === "-" && text !== "0" ? `-${text}` : text;
}

/** Compares two texts as DynamoDB sorts them: by code points. */
function compareTexts(left: string, right: string): number {
  const [letters, others] = [Array.from(left), Array.from(right)];
  const place = letters.findIndex((letter, index) => letter !== others[index]);
  if (place < 0) return letters.length - others.length;
  const code = others[place]?.codePointAt(0) ?? -1;
  return (letters[place]?.codePointAt(0) ?? -1) - code;
}

/** Compares two numbers exactly, whatever their number of digits. */
function compareNumbers(left: Numeric, right: Numeric): number {
  if (typeof left === "number" && typeof right === "number") return left - right;
  const [a, b] = [textOf(left), textOf(right)];
  const [low, high] = [a.startsWith("-"), b.startsWith("-")];
  if (low !== high) return low ? -1 : 1;
  const [[x = "", y = ""], [u = "", v = ""]] = [a, b].map((text) =>
    text.replace("-", "").split("."),
  ) as [string[], string[]];
  const order = x.length - u.length || compareTexts(x + y, u + v);
  return low ? -order : order;
}

/** Compares two texts or two numbers; NaN for other values. */
function compare(left: unknown, right: unknown): number {
  if (typeof left === "string" && typeof right === "string") {
    return compareTexts(left, right);
  }
  return isNumeric(left) && isNumeric(right) ? compareNumbers(left, right) : NaN;
}

/** Returns whether a value has the same text in a key as another. */
function sameText(value: unknown, wanted: Scalar): boolean {
  return isScalar(value) && textOf(value) === textOf(wanted);
}

function isScalar(value: unknown): value is Scalar {
  return typeof value === "string" || isNumeric(value);
}

/**
 * Returns whether a text or a number is between two bounds, both included.
 *
 * The upper bound 2026-04 includes all times that begin with it.
 */
function isWithin(
  value: unknown,
  low?: Scalar,
  high?: Scalar,
  beginning?: string,
): boolean {
  if (!isScalar(value)) return false;
  const text = typeof value === "string" ? value : undefined;
  if (beginning && !text?.startsWith(beginning)) return false;
  const order = (bound: Scalar): number =>
    compare(value, text === undefined ? numberOf(bound) : textOf(bound));
  return (
    (low === undefined || order(low) >= 0) &&
    (high === undefined ||
      order(high) <= 0 ||
      (text !== undefined && text.startsWith(textOf(high)) && begins(textOf(high))))
  );
}

/** Returns a number, or the number in a text, undefined if it contains another one or none. */
function numberOf(value: Scalar): Numeric | undefined {
  if (typeof value !== "string") return value;
  const fits = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(value);
  return fits ? NumberValue.from(value) : undefined;
}

/** Returns whether a text is the beginning of a time in ISO 8601, or one without offset. */
function begins(text: string): boolean {
  return BEGINNING.test(text);
}

/** Returns a value, or the elements of a list or set. */
function elements(value: unknown): unknown[] {
  return Array.isArray(value) || value instanceof Set
    ? [...value].flatMap(elements)
    : [value];
}

/** Returns whether a value, or an element of it, is one of these. */
function isAny(value: unknown, ...wanted: (Scalar | boolean | null)[]): boolean {
  return elements(value).some((element) =>
    wanted.some((scalar) =>
      isNumeric(scalar) ? compare(element, scalar) === 0 : element === scalar,
    ),
  );
}

/** Returns whether a text, or a text in a list or set, fits. */
function anyText(value: unknown, fits: (text: string) => boolean): boolean {
  return elements(value).some(
    (element) => typeof element === "string" && fits(element),
  );
}

/** Returns whether a value, or an element of it, is within all these bounds. */
function compares(value: unknown, ...bounds: [string, unknown][]): boolean {
  return elements(value).some((element) =>
    bounds.every(([sign, other]) => isWithinBound(element, sign, other)),
  );
}

/** Returns whether two numbers, or two texts, compare like this; others do not. */
function isWithinBound(value: unknown, sign: string, other: unknown): boolean {
  const order = compare(value, other);
  if (Number.isNaN(order)) return false;
  if (sign === "!=") return order !== 0;
  if (order === 0) return sign.includes("=");
  return order > 0 ? sign.startsWith(">") : sign.startsWith("<");
}

/** Returns a text for comparisons without case, as Unicode folds it. */
function foldCase(text: string): string {
  return Array.from(text, (letter) => {
    if (letter === "\u0131") return letter;
    const upper = letter.toLowerCase().toUpperCase();
    if (/\p{Script=Cherokee}/u.test(letter)) return upper;
    return Array.from(upper, (each) => each.toLowerCase()).join("");
  }).join("");
}

/** Returns the first characters of a text. */
function truncate(text: string, length: number): string {
  return Array.from(text).slice(0, length).join("");
}

/** Returns a variable of a key. Throws RangeError if it could not be read back. */
function keyPart(value: string, separator: string | null = "#"): string {
  if (!value || (separator !== null && value.includes(separator))) {
    throw new RangeError(`empty, or with ${separator}, in a key: ${value}`);
  }
  return value;
}

/** Returns a whole number with leading zeros. */
function pad(value: unknown, digits: number): string {
  const text = textOf(value);
  const number = text.replace(/^0+/, "");
  if (!/^[0-9]+$/.test(text) || number.length > digits) {
    throw new RangeError(`not a whole number of at most ${digits} digits: ${text}`);
  }
  return number.padStart(digits, "0");
}

/** Returns a number of which the greatest sorts first. */
function invert(value: unknown, digits: number): string {
  const greatest = BigInt("9".repeat(digits));
  return String(greatest - BigInt(pad(value, digits))).padStart(digits, "0");
}

/** Returns the number of the bucket of a value: its CRC-32, modulo the number of buckets. */
function bucketOf(value: unknown, buckets: number): string {
  let crc = ~0;
  for (const byte of new TextEncoder().encode(textOf(value))) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return String((~crc >>> 0) % buckets);
}

/** Returns the whole numbers from 0 to a number, without it. */
function range(end: number): number[] {
  return Array.from({ length: end }, (_, number) => number);
}

/** A time in microseconds since 1970. Throws RangeError for one that is not in the years 1 to 9999. */
class Time {
  readonly microseconds: bigint;

  constructor(microseconds: bigint) {
    this.microseconds = microseconds;
    const seconds = microseconds / 1_000_000n;
    if (seconds < -62_135_596_800n || seconds >= 253_402_300_800n) {
      throw new RangeError("not between the years 1 and 9999");
    }
  }
}

/** Returns the time of seconds (6 digits to microseconds) or milliseconds (3) since 1970. */
function since1970(value: unknown, digits: 3 | 6): Time {
  const text = textOf(value);
  if (!/^-?\d+(\.\d+)?$/.test(text)) throw new RangeError(`not a number: ${text}`);
  const [whole = "", fraction = ""] = text.split(".");
  const floor = text.startsWith("-") && /[1-9]/.test(fraction.slice(digits)) ? 1n : 0n;
  return new Time(
    BigInt(whole + fraction.padEnd(digits, "0").slice(0, digits)) - floor,
  );
}

/** Returns the time at midnight of a day in UTC. Throws RangeError for a day that does not exist. */
function timeAt(
  year: number,
  month = 1,
  day = 1,
  hour = 0,
  minute = 0,
  second = 0,
  microsecond = 0,
): Time {
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  const same = date.getUTCMonth() === month - 1 && date.getUTCDate() === day;
  if (!same || year < 1 || hour > 23 || minute > 59 || second > 59) {
    throw new RangeError(`not a time that exists: ${year}-${month}-${day}`);
  }
  const seconds = date.getTime() / 1000 + hour * 3600 + minute * 60 + second;
  return new Time(BigInt(seconds) * 1_000_000n + BigInt(microsecond));
}

/** Returns the time of a text in ISO 8601, or of seconds since 1970. */
function timeOf(value: unknown): Time {
  if (value instanceof Time) return value;
  const text = textOf(value);
  if (/^-?\d+(\.\d+)?$/.test(text)) {
    if (Math.abs(Number(text)) < 1e8) {
      throw new RangeError(`a date, or a time before 1973: ${text}`);
    }
    return since1970(text, 6);
  }
  const match = ISO.exec(text);
  if (match === null) throw new RangeError(`not a time: ${text}`);
  const [year, month, day, hour, minute, second] = match
    .slice(1, 7)
    .map((part) => (part === undefined ? undefined : Number(part)));
  const fraction = Number((match[7] ?? "").padEnd(6, "0").slice(0, 6));
  const time = timeAt(year ?? 0, month, day, hour, minute, second, fraction);
  const offset = Number(match[9] ?? 0) * 60 + Number(match[10] ?? 0);
  const sign = match[8] === "-" ? -60_000_000n : 60_000_000n;
  return new Time(time.microseconds - sign * BigInt(offset));
}

/** Returns the time in a ULID. */
function ulidTime(value: string): Time {
  const letters = Array.from(value.toUpperCase().slice(0, 10));
  return since1970(
    letters.reduce((number, letter) => number * 32 + CROCKFORD.indexOf(letter), 0),
    3,
  );
}

/** Returns a time in a format of strftime. */
function formatDate(value: unknown, form: string, zone = "UTC"): string {
  const { microseconds } = timeOf(value);
  const microsecond = ((microseconds % 1_000_000n) + 1_000_000n) % 1_000_000n;
  const date = new Date(Number((microseconds - microsecond) / 1000n));
  const there = date.toLocaleString("sv-SE", { timeZone: zone }); // as 2026-01-31 12:00:00
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] =
    there.split(/\D/).map(Number);
  const today = dayNumber(year, month, day);
  const weekday = weekdayOf(today);
  const thursday = today + 4 - weekday;
  const weekYear = new Date(thursday * 86_400_000).getUTCFullYear();
  const fields: Record<string, number> = {
    Y: year,
    m: month,
    d: day,
    H: hour,
    M: minute,
    S: second,
    f: Number(microsecond),
    j: today - dayNumber(year, 1, 1) + 1,
    G: weekYear,
    V: Math.floor((thursday - dayNumber(weekYear, 1, 1)) / 7) + 1,
    u: weekday,
  };
  return form.replace(/%(.)/gs, (_, code: string) =>
    code === "%" ? "%" : String(fields[code]).padStart(DIGITS[code] ?? 2, "0"),
  );
}

/** Returns the number of days from 1970-01-01 to a day. */
function dayNumber(year: number, month: number, day: number): number {
  return new Date(0).setUTCFullYear(year, month - 1, day) / 86_400_000;
}

/** Returns the day of the week of a day by its number: 1 for Monday. */
function weekdayOf(day: number): number {
  return ((((day + 3) % 7) + 7) % 7) + 1;
}

/** Returns the time of a value in a format of strftime. Throws RangeError. */
function parseTime(value: unknown, form: string): Time {
  const text = textOf(value);
  const codes: string[] = [];
  const pattern = form.replace(/%(.)|[^]/gsu, (letter, code?: string) => {
    if (code === undefined || code === "%") {
      return (code ?? letter).replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
    }
    codes.push(code);
    return `([0-9]{${DIGITS[code] ?? 2}})`;
  });
  const match = new RegExp(`^${pattern}$`, "u").exec(text);
  if (match === null) throw new RangeError(`not written as ${form}: ${text}`);
  const parts = new Map(codes.map((code, place) => [code, Number(match[place + 1])]));
  const part = (code: string, otherwise: number): number =>
    parts.get(code) ?? otherwise;
  let day = dayNumber(part("Y", 1970), part("m", 1), part("d", 1)) + part("j", 1) - 1;
  if (parts.has("G")) {
    const fourth = dayNumber(part("G", 1970), 1, 4); // in the first week
    day = fourth - weekdayOf(fourth) + (part("V", 1) - 1) * 7 + part("u", 1);
  }
  const seconds = day * 86_400 + part("H", 0) * 3600 + part("M", 0) * 60 + part("S", 0);
  const time = new Time(BigInt(seconds) * 1_000_000n + BigInt(part("f", 0)));
  if (formatDate(time, form) !== text)
    throw new RangeError(`not a time that exists: ${text}`);
  return time;
}

/**
 * Returns the first or the last time that a bound may admit.
 *
 * A bound without offset is compared with times as they are written, whose offsets are from -12 to +14 hours.
 */
function timeOfBound(value: unknown, last: boolean): Time {
  const match = typeof value === "string" ? BEGINNING.exec(value) : null;
  if (match === null || (/^\d+$/.test(match[0]) && match[2])) return timeOf(value);
  const parts = match
    .slice(1)
    .filter((part) => part !== undefined)
    .map(Number);
  const [year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0] = parts;
  const first = timeAt(year, month, day, hour, minute, second).microseconds;
  const hours = 3_600_000_000n;
  if (!last) return new Time(first - 14n * hours);
  const units = [24n * hours, hours, 60_000_000n, 1_000_000n];
  let end: bigint;
  if (parts.length === 1) end = timeAt(year + 1).microseconds;
  else if (parts.length === 2) {
    end = timeAt(month === 12 ? year + 1 : year, (month % 12) + 1).microseconds;
  } else end = first + (units[parts.length - 3] ?? 0n);
  return new Time(end + 12n * hours - 1n);
}

/**
 * Returns all periods between two times, the first one first. Without an end, until now.
 *
 * `step` is in seconds, and shorter than a period. Throws RangeError for more than 1000 periods.
 */
function periodsBetween(
  first: Scalar | Time,
  last: Scalar | Time | undefined,
  form: string,
  step: number,
  zone = "UTC",
): string[] {
  let { microseconds } = timeOfBound(first, false);
  const end =
    last === undefined ? new Time(BigInt(Date.now()) * 1000n) : timeOfBound(last, true);
  if (microseconds > end.microseconds) return [];
  const periods = new Set<string>();
  while (microseconds < end.microseconds && periods.size <= 1000) {
    periods.add(formatDate(new Time(microseconds), form, zone));
    microseconds += BigInt(step * 1_000_000);
  }
  periods.add(formatDate(end, form, zone));
  if (periods.size > 1000) {
    throw new RangeError("more than 1000 periods: ask for a shorter time");
  }
  return [...periods];
}

/** A condition on a key attribute: its name, an operator, and one or two values. */
type Condition = [
  name: string,
  operator: "=" | "<=" | ">=" | "between" | "begins_with",
  first: Scalar,
  second?: Scalar,
];

/**
 * Returns the condition on a sort key: a prefix, then a text between two others.
 *
 * `rest` is what the greatest of these keys has after its text.
 */
function textBetween(
  name: string,
  prefix: string,
  low?: Scalar,
  high?: Scalar,
  beginning?: string,
  rest = "",
): Condition {
  if (beginning) return [name, "begins_with", prefix + beginning];
  if (low === undefined && high === undefined && prefix) {
    return [name, "begins_with", prefix];
  }
  const least = prefix + (low === undefined ? "" : textOf(low)) || "\0";
  const ends = high !== undefined && begins(textOf(high)) ? HIGHEST : rest;
  const most = prefix + (high === undefined ? HIGHEST : textOf(high) + ends);
  // DynamoDB rejects a range without texts; the item that this one may have does not fit
  return [name, "between", least, compareTexts(least, most) > 0 ? least : most];
}

/** Returns the conditions on a number that is a sort key: none without bounds. */
function numberBetween(name: string, low?: Numeric, high?: Numeric): Condition[] {
  if (low === undefined) return high === undefined ? [] : [[name, "<=", high]];
  if (high === undefined) return [[name, ">=", low]];
  return [[name, "between", low, compareNumbers(low, high) > 0 ? low : high]];
}

/**
 * Returns the input of an update that sets attributes.
 *
 * `names` and `values` have the placeholders of its condition.
 */
function setExpression(changes: Item, names?: Record<string, string>, values?: Item) {
  const changed = Object.keys(changes);
  const placed = (sign: string, value: (name: string) => any) =>
    Object.fromEntries(changed.map((name, place) => [`${sign}n${place}`, value(name)]));
  return {
    UpdateExpression: `SET ${changed.map((_, place) => `#n${place} = :n${place}`).join(", ")}`,
    ExpressionAttributeNames: { ...placed("#", (name) => name), ...names },
    ExpressionAttributeValues: { ...placed(":", (name) => changes[name]), ...values },
  };
}

/** Returns the next version of an item. */
function next(version: Numeric): number | bigint {
  if (typeof version === "number") return version + 1;
  return BigInt(typeof version === "bigint" ? version : version.value) + 1n;
}

/** The table or an index, and the attributes of its keys. */
interface Path {
  index?: string;
  key: string[];
}

/** One Query request. `only` tells the items that it is for, if others of the query are read elsewhere. */
interface Read {
  path: Path;
  where: Condition[];
  descending?: boolean;
  only?: (item: Item) => boolean;
}

/** Returns the name of a read in page tokens: other arguments make another name. */
function nameOf({ path, where }: Read): string {
  const values = where.flatMap(([, , ...values]) => values);
  return JSON.stringify([path.index ?? null, ...values.map(textOf)]);
}

/** Items of one page, and the token of the next page: undefined at the end. */
export interface Page<T> {
  items: T[];
  token?: string | undefined;
}

/** By the name of a read, the key of the last item that was returned. */
type Places = Record<string, Item>;

/** How items are read: `show` returns what the caller gets of one, `limit` is that of a page. */
interface Options {
  show?: (item: Item) => Item;
  mergeBy?: string[];
  limit?: number;
  consistent?: boolean;
}

/**
 * The items of a query: iterate over them with `for await`, take them by pages, or all at once.
 *
 * The reads of one stage are merged by the attributes in `mergeBy`; stages follow each other. What is read is tested
 * again, because an index may lag behind its table.
 */
export class Results<T> implements AsyncIterable<T> {
  private readonly table: Table;
  private readonly stages: Read[][];
  private readonly fits: (item: Item) => boolean;
  private readonly options: Options;

  constructor(
    table: Table,
    stages: Read[][],
    fits: (item: Item) => boolean,
    options: Options = {},
  ) {
    this.table = table;
    this.stages = stages;
    this.fits = fits;
    this.options = options;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    for await (const { item } of this.items({}, undefined)) yield this.show(item);
  }

  /** Returns all items. */
  async all(): Promise<T[]> {
    const items: T[] = [];
    for await (const item of this) items.push(item);
    return items;
  }

  /**
   * Returns the next page. `token` is that of the page before it.
   *
   * A page has at most `limit` items, by default as many as the query says; without either, all.
   *
   * Throws RangeError for a token of another query or of other arguments, and for a limit that is
   * not a whole number, or below 1.
   */
  async page(
    options: { limit?: number | undefined; token?: string | undefined } = {},
  ): Promise<Page<T>> {
    const most = options.limit ?? this.options.limit;
    if (most !== undefined && !(Number.isInteger(most) && most >= 1)) {
      throw new RangeError("limit must be a whole number, at least 1");
    }
    let places = placesOf(options.token);
    let current: Read[] | undefined;
    const items: T[] = [];
    for await (const { stage, read, item } of this.items(places, most)) {
      if (items.length === most) return { items, token: tokenOf(places) };
      if (stage !== current) {
        const names = stage.map(nameOf);
        places = pick(places, ...names);
        current = stage;
      }
      places[nameOf(read)] = pick(item, ...read.path.key);
      items.push(this.show(item));
    }
    return { items };
  }

  /** Returns the first item, undefined if there is none. */
  async first(): Promise<T | undefined> {
    return (await this.page({ limit: 1 })).items[0];
  }

  /** Returns items without a number of them that come first. */
  async after(skipped: number, count: number): Promise<T[]> {
    const share = Math.floor(skipped / (this.stages[0]?.length || 1));
    const items: T[] = [];
    let before = skipped;
    for await (const { item } of this.items({}, Math.min(count + share, 10_000))) {
      if (before-- > 0) continue;
      items.push(this.show(item));
      if (items.length === count) break;
    }
    return items;
  }

  private show(item: Item): T {
    return (this.options.show ?? withoutGuards)(item) as T;
  }

  /** Yields the items after these places, each with its stage and its read. */
  private async *items(after: Places, limit: number | undefined) {
    const places = { ...after };
    for (const stage of this.stages) {
      const names = stage.map(nameOf);
      const open = Object.keys(places);
      if (open.length > 0 && !open.some((name) => names.includes(name))) continue;
      const streams = stage.map((read) => {
        const place = places[nameOf(read)];
        delete places[nameOf(read)];
        return this.stream(read, place, limit);
      });
      if (Object.keys(places).length > 0) break;
      const heads = await Promise.all(
        streams.map(async (each) => (await each.next()).value),
      );
      for (;;) {
        const best = this.best(stage, heads);
        const [item, read, stream] = [heads[best], stage[best], streams[best]];
        if (!item || !read || !stream) break;
        yield { stage, read, item };
        heads[best] = (await stream.next()).value;
      }
    }
    if (Object.keys(places).length > 0) {
      throw new RangeError("the page token belongs to other arguments");
    }
  }

  /** Returns the position of the item that comes first, -1 if there is none. */
  private best(stage: Read[], heads: (Item | void)[]): number {
    const sign = stage[0]?.descending ? -1 : 1;
    let best = -1;
    heads.forEach((head, place) => {
      if (!head) return;
      const first = heads[best];
      const order = (this.options.mergeBy ?? [])
        .map((name) => (first ? compare(head[name], first[name]) : 0))
        .find((each) => each !== 0);
      if (!first || (order !== undefined && order * sign < 0)) best = place;
    });
    return best;
  }

  /** Yields the items of one read that are part of the answer. */
  private async *stream(
    read: Read,
    after: Item | undefined,
    limit: number | undefined,
  ) {
    let start = after;
    do {
      const response = await this.table.client.send(
        new QueryCommand({
          TableName: this.table.name,
          IndexName: read.path.index,
          ...keyCondition(read.where),
          ScanIndexForward: !read.descending,
          ConsistentRead: this.options.consistent,
          Limit: limit === undefined ? undefined : limit + 1, // one more tells whether it is the last page
          ExclusiveStartKey: start,
        }),
      );
      for (const item of response.Items ?? []) {
        if (this.fits(item) && (read.only?.(item) ?? true)) yield item;
      }
      start = response.LastEvaluatedKey;
    } while (start !== undefined);
  }
}

/** Returns the part of a Query request with its conditions. */
function keyCondition(where: Condition[]) {
  const names: Record<string, string> = {};
  const values: Item = {};
  const terms = where.map(([name, operator, first, second], place) => {
    const [key, low, high] = [`#k${place}`, `:v${place}`, `:w${place}`];
    names[key] = name;
    values[low] = first;
    if (second !== undefined) values[high] = second;
    if (operator === "between") return `${key} BETWEEN ${low} AND ${high}`;
    if (operator === "begins_with") return `begins_with(${key}, ${low})`;
    return `${key} ${operator} ${low}`;
  });
  return {
    KeyConditionExpression: terms.join(" AND "),
    ExpressionAttributeNames: names,
    ExpressionAttributeValues: values,
  };
}

/** Returns the item with a key, undefined if there is none or if it is another. */
async function getItem<T>(
  table: Table,
  key: Item,
  fits: (item: Item) => boolean,
  options: Options = {},
): Promise<T | undefined> {
  const { Item: item } = await table.client.send(
    new GetCommand({
      TableName: table.name,
      Key: key,
      ConsistentRead: options.consistent,
    }),
  );
  return item && fits(item) ? ((options.show ?? withoutGuards)(item) as T) : undefined;
}

/** Returns a page token: the key of the last returned item of each read. */
function tokenOf(places: Places): string {
  const text = JSON.stringify(places, function (this: Item, name) {
    return isNumeric(this[name]) ? [textOf(this[name])] : this[name]; // no key is a list
  });
  const ascii = text.replace(
    /[^\0-\x7f]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  return btoa(ascii).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

function placesOf(token: string | undefined): Places {
  if (token === undefined) return {};
  try {
    const text = atob(token.replace(/-/g, "+").replace(/_/g, "/"));
    const places = JSON.parse(text, (_, value) =>
      Array.isArray(value) ? NumberValue.from(value[0]) : value,
    );
    if (Object.keys(places).length > 0 && typeof places === "object") return places;
  } catch {
    // as below
  }
  throw new RangeError("invalid page token");
}
