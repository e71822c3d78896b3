// The helpers of generated TypeScript modules that read ranks: written as those in runtime.ts, and copied with them.

const MAINTAINED = ["active", "filling", "ready", "standby"];

const MOST_SKIPPED = 10_000;

/** The decimal places of sums. */
const SUM_PLACES = 10;

/** A version of a rule that counts the scores of boards, and the key of a board. */
interface RankRule {
  name: string;
  version: string;
  board: Record<string, string>;
  digits: number;
  decimals: number;
  descending: boolean;
  sums: boolean;
}

/**
 * A score and its place: `rank` is 1 plus the number of better scores of the board.
 *
 * `equal` is how many have this score. With `complete` false, not all scores are
 * counted: the rule fills, or a group is damaged. `percentile` is the percentage of
 * scores that are equal or worse, undefined on an empty board.
 */
export interface Ranked {
  score: Numeric;
  rank: number;
  equal: number;
  total: number;
  complete: boolean;
  percentile: number | undefined;
}

/** The number of scores between two bounds, and of all. `complete` as in `Ranked`. */
export interface ScoreCount {
  count: number;
  total: number;
  complete: boolean;
}

/** A `ScoreCount`, with the exact sum over the counted scores. */
export interface ScoreSum extends ScoreCount {
  sum: Numeric;
}

/** A position, the score there, and how many equal ones are skipped before it. */
interface Place {
  position: number;
  skipped: number;
  score?: Numeric;
  total: number;
  complete: boolean;
  ranked?: Ranked;
}

/**
 * The items at consecutive positions of a board, from `first` on.
 *
 * `skipped` items with the score of the first one were read and left out: at most
 * 10,000; after more, `first` is less than the position that was asked for. `complete`
 * as in `Ranked`; also false if the rule has changed since this module was generated.
 */
export interface Positions<T> {
  items: T[];
  first: number;
  skipped: number;
  total: number;
  complete: boolean;
}

/** Returns a number times a power of 10, rounded down, and whether that is exact. */
function shifted(number: Numeric, places: number): [bigint, boolean] {
  const text = textOf(number);
  if (!/^-?\d+(\.\d+)?$/.test(text)) throw new RangeError(`not a number: ${text}`);
  const [whole = "", fraction = ""] = text.split(".");
  const digits = fraction.padEnd(places, "0");
  const exact = !/[1-9]/.test(digits.slice(places));
  const floor = exact || !text.startsWith("-") ? 0n : 1n;
  return [BigInt(whole + digits.slice(0, places)) - floor, exact];
}

/** Returns a number as JavaScript has it, if that is exact. */
function numberIn(text: string): Numeric {
  return textOf(Number(text)) === text ? Number(text) : NumberValue.from(text);
}

/** Returns the digits of a score in twos, as the ledger counts them. */
function partsOf(rule: RankRule, score: bigint): string[] {
  const width = Math.ceil(rule.digits / 2) * 2;
  const size = 10n ** BigInt(width);
  const text = String(((score % size) + size) % size).padStart(width, "0");
  const [first = "", ...rest] = text.match(/../g) ?? [];
  return [score < 0n ? `-${first}` : first, ...rest];
}

/** Returns the score of these digits. */
function scoreOf(rule: RankRule, parts: string[]): Numeric {
  const text = parts.join("");
  const below = text.startsWith("-") ? 10n ** BigInt(text.length - 1) : 0n;
  return divided(BigInt(text.replace("-", "")) - below, rule.decimals);
}

/** Returns a number divided by a power of 10. */
function divided(number: bigint, places: number): Numeric {
  const digits = String(number < 0n ? -number : number).padStart(places + 1, "0");
  const point = digits.length - places;
  const written = `${number < 0n ? "-" : ""}${digits.slice(0, point)}.${digits.slice(point)}`;
  return numberIn(textOf(NumberValue.from(written.replace(/\.$/, ""))));
}

/** Returns the digits of the nearest score within a bound; none if there is none. */
function partsWithin(rule: RankRule, bound: Numeric, low: boolean): string[] {
  const most = 10n ** BigInt(rule.digits) - 1n;
  const [floor, exact] = shifted(bound, rule.decimals);
  const nearest = low && !exact ? floor + 1n : floor;
  if (floor >= (exact ? most + 1n : most)) return low ? [] : partsOf(rule, most);
  if (floor < -most) return low ? partsOf(rule, -most) : [];
  return partsOf(rule, nearest);
}

/** The groups of the ledger in which a version of a rule counts a board. */
class Groups {
  readonly rule: RankRule;
  complete: boolean;
  private readonly ledger: Table;
  private readonly start: string;

  constructor(ledger: Table, rule: RankRule, start: string, complete: boolean) {
    this.ledger = ledger;
    this.rule = rule;
    this.start = start;
    this.complete = complete;
  }

  /**
   * Returns the scores that begin with these digits: counted by the next, and all.
   *
   * The last are their sums by the next digits, in units of the last decimal place.
   */
  async read(parts: string[]): Promise<[Map<string, number>, number, Map<string, bigint>]> {
    const scale = `${this.rule.digits}${this.rule.decimals ? `.${this.rule.decimals}` : ""}`;
    const name = `${this.start}|%=${scale}:${parts.join("")}`;
    const key = keyCondition([["pk", "=", await ledgerKey(name)]]);
    const { Items: shards = [] } = await this.ledger.client.send(
      new QueryCommand({ TableName: this.ledger.name, ...key, ConsistentRead: true }),
    );
    const counts = new Map<string, number>();
    const sums = new Map<string, bigint>();
    let all = 0;
    for (const [attribute, value] of shards.flatMap(Object.entries)) {
      if (attribute !== "n" && !/^[=+]/.test(attribute)) continue;
      const part = attribute.slice(1);
      if (!isNumeric(value)) this.complete = false;
      else if (attribute === "n") all += Number(textOf(value));
      else if (attribute.startsWith("+")) {
        sums.set(part, (sums.get(part) ?? 0n) + shifted(value, SUM_PLACES)[0]);
      } else counts.set(part, (counts.get(part) ?? 0) + Number(textOf(value)));
    }
    return [counts, all, sums];
  }

  /**
   * Returns how many scores are greater, or less, how many are equal, and all.
   *
   * The last is the sum over those that are greater, or less, as `read` has sums.
   */
  async beyond(
    parts: string[],
    greater: boolean,
  ): Promise<[number, number, number, bigint]> {
    let [beyond, equal, total, amount] = [0, 0, 0, 0n];
    for (const [level, part] of parts.entries()) {
      const [counts, all, sums] = await this.read(parts.slice(0, level));
      if (level === 0) total = all;
      equal = counts.get(part) ?? 0;
      for (const [other, count] of counts) {
        if (other === part || other > part !== greater) continue;
        beyond += count;
        amount += sums.get(other) ?? 0n;
      }
    }
    return [beyond, equal, total, amount];
  }

  /** Returns the scores between two bounds. */
  async between(low?: Numeric, high?: Numeric): Promise<ScoreSum> {
    const [, total, sums] = await this.read([]);
    let count = total;
    let amount = [...sums.values()].reduce((sum, each) => sum + each, 0n);
    for (const [bound, isLow] of [[low, true] as const, [high, false] as const]) {
      if (bound === undefined) continue;
      const parts = partsWithin(this.rule, bound, isLow);
      const [outside, , , beyond] = await this.beyond(parts, !isLow);
      count -= parts.length > 0 ? outside : total;
      amount -= beyond;
    }
    const sum = divided(count > 0 ? amount : 0n, SUM_PLACES);
    return { count: Math.max(0, count), total, complete: this.complete, sum };
  }
}

/**
 * The ranks of one board. Each method reads the ledger, strongly consistently.
 *
 * That is a request for the registry, which names the published version of the rule, and
 * one for each two digits of a score.
 */
export class Ranking {
  private readonly ledger: Table;
  private readonly rule: RankRule;
  private readonly board: string;

  constructor(ledger: Table, rule: RankRule, table: string, key: Item) {
    this.ledger = ledger;
    this.rule = rule;
    const texts = Object.values(key).map(textOf);
    const escaped = texts.map((text) =>
      text.replace(/%/g, "%25").replace(/\|/g, "%7C"),
    );
    this.board = [table, ...escaped].join("|");
  }

  /** Returns the rank of a score, which no item needs to have. Throws RangeError. */
  async rank(score: Numeric): Promise<Ranked> {
    const groups = await this.published();
    const { rule } = groups;
    const [scaled, exact] = shifted(score, rule.decimals);
    const most = 10n ** BigInt(rule.digits) - 1n;
    if (!exact || scaled > most || scaled < -most) {
      throw new RangeError(
        `the rule ${rule.name} does not count the score ${textOf(score)}`,
      );
    }
    const parts = partsOf(rule, scaled);
    const [better, equal, total] = await groups.beyond(parts, rule.descending);
    const number = numberIn(textOf(score));
    return ranked(number, 1 + better, equal, total, groups.complete);
  }

  /**
   * Returns the number of scores from `low` to `high`, both included.
   *
   * Undefined is no bound. A bound may have more digits than scores have.
   */
  async between(low?: Numeric, high?: Numeric): Promise<ScoreCount> {
    const groups = await this.published();
    const { count, total, complete } = await groups.between(low, high);
    return { count, total, complete };
  }

  /**
   * Returns the sum over the scores that `between` counts, and their number.
   *
   * Throws RangeError if the published version of the rule has no `sum`.
   */
  async sumBetween(low?: Numeric, high?: Numeric): Promise<ScoreSum> {
    const groups = await this.published();
    if (!groups.rule.sums) {
      throw new RangeError(`the rule ${groups.rule.name} has no \`sum\``);
    }
    return groups.between(low, high);
  }

  /** Returns the score at a position, 1 for the best; undefined if there are fewer. */
  async at(position: number): Promise<Ranked | undefined> {
    return (await this.place(position)).ranked;
  }

  /**
   * Returns a position, or a random one, with its score. Throws RangeError.
   *
   * With `unsigned`, the index has no items with negative scores.
   */
  async place(
    position?: number,
    { unsigned = false }: { unsigned?: boolean } = {},
  ): Promise<Place> {
    if (position !== undefined && position < 1) {
      throw new RangeError("the best score has position 1");
    }
    const groups = await this.published();
    const { rule } = groups;
    let [counts, total] = await groups.read([]);
    const draw = (most: number): number => Math.floor(Math.random() * most);
    let first = position ?? draw(total || 1) + 1;
    let [better, equal] = [0, 0];
    const parts: string[] = [];
    while (first <= total) {
      let part: string | undefined;
      const sorted = [...counts.keys()].sort();
      for (const each of rule.descending ? sorted.reverse() : sorted) {
        equal = Math.max(0, counts.get(each) ?? 0);
        if (better + equal >= first) {
          part = each;
          break;
        }
        better += equal;
      }
      // without one, a score has changed since the first group was read
      if (part === undefined) {
        return { position: first, skipped: 0, total, complete: false };
      }
      parts.push(part);
      if (2 * parts.length >= rule.digits) break;
      [counts] = await groups.read(parts);
    }
    const same = JSON.stringify(rule) === JSON.stringify(this.rule);
    const complete = groups.complete && same;
    if (first > total) return { position: first, skipped: 0, total, complete };
    const score = scoreOf(rule, parts);
    const there = ranked(score, 1 + better, equal, total, groups.complete);
    let skipped = first - there.rank;
    if (skipped > MOST_SKIPPED)
      skipped = position ? MOST_SKIPPED : draw(MOST_SKIPPED + 1);
    first = there.rank + skipped;
    const place = { position: first, skipped, total, ranked: there };
    if (unsigned && compareNumbers(score, 0) < 0) return { ...place, complete: false };
    return { ...place, score, complete };
  }

  /** Returns the groups of the published version; without one, of that which fills. */
  private async published(): Promise<Groups> {
    const registry = await this.item(".");
    const known = registry.rules?.[this.rule.name] ?? {};
    const versions = Object.entries<any>(known)
      .filter(([text, fields]) => text !== "next" && MAINTAINED.includes(fields.s))
      .map(([text, fields]) => ({
        fills: fields.s !== "active",
        number: Number(text),
        fields,
      }))
      .sort((a, b) => Number(a.fills) - Number(b.fills) || a.number - b.number);
    const { fills = true, number = 0, fields } = versions[0] ?? {};
    let rule = this.rule;
    if (fields !== undefined && fields.f !== rule.version) {
      const { document } = await this.item(`rule|${rule.name}.${number}`);
      rule = rankRule(rule.name, fields.f, JSON.parse(document));
      if (JSON.stringify(rule.board) !== JSON.stringify(this.rule.board)) {
        throw new RangeError("the key has changed: generate this module again");
      }
    }
    return new Groups(
      this.ledger,
      rule,
      `G|${rule.name}.${number}|${this.board}`,
      !fills,
    );
  }

  /** Returns an item of the registry, empty if there is none. */
  private async item(sort: string): Promise<any> {
    const { client, name } = this.ledger;
    const Key = { pk: "R", sk: sort };
    const response = await client.send(
      new GetCommand({ TableName: name, Key, ConsistentRead: true }),
    );
    return response.Item ?? {};
  }
}

function ranked(
  score: Numeric,
  rank: number,
  equal: number,
  total: number,
  complete: boolean,
): Ranked {
  const percentile = total ? (100 * (total - rank + 1)) / total : undefined;
  return { score, rank, equal, total, complete, percentile };
}

/** Returns another version of a rule than this module knows. */
function rankRule(name: string, version: string, document: any): RankRule {
  const { into, digits, decimals, order, sum } = document.rule.rank;
  const board = document.entities[into].key;
  const [descending, sums] = [order === "desc", sum !== undefined];
  return { name, version, board, digits, decimals, descending, sums };
}

/** Returns the items from a place on: as many as there are positions. */
async function positions<T>(
  results: Results<T>,
  place: Place,
  first: number,
  last: number,
): Promise<Positions<T>> {
  if (last < first)
    throw new RangeError("the last position is less than the first one");
  const { position, skipped, total, complete } = place;
  const count = last - first + 1;
  const items = place.score === undefined ? [] : await results.after(skipped, count);
  return { items, first: position, skipped, total, complete };
}

/** Returns the first item from a place on; undefined if there is none. */
async function random<T>(results: Results<T>, place: Place): Promise<T | undefined> {
  return (await positions(results, place, 1, 1)).items[0];
}

/** Returns the partition key of a group: a long one ends in a hash. */
async function ledgerKey(text: string): Promise<string> {
  let [head, bytes] = ["", 0];
  for (const letter of text) {
    if (bytes >= 1502) break;
    head += letter;
    bytes += new TextEncoder().encode(letter).length;
  }
  if (head === text) return text;
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  const digits = Array.from(new Uint8Array(hash), (byte) =>
    byte.toString(16).padStart(2, "0"),
  );
  return `${head}#${digits.join("")}`;
}
