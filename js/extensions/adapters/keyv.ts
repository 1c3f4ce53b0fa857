/** `varve/keyv`: a store for Keyv. It has no code of Keyv, and works with its versions 5 and 6. */

import { entriesIn, expiryIn, type Raw, rawOf, refused, textOf, using } from "../raw.js";

/** The options of `KeyvVarve`. */
export interface KeyvVarveOptions {
  /** What the keys in the database begin with, `"keyv/"` by default. Everything else in the database stays untouched. */
  prefix?: string | undefined;
}

/** What `setMany` stores. `ttl` is in milliseconds. */
export interface KeyvVarveEntry {
  readonly key: string;
  readonly value: unknown;
  readonly ttl?: number;
}

/**
 * Keeps what Keyv stores as raw keys of a database, or of a client of one.
 *
 * ```ts
 * const cache = new Keyv({ store: new KeyvVarve(db), namespace: "pages", throwOnErrors: true });
 * await cache.set("home", { title: "Home" }, 60_000); // a TTL in milliseconds
 * ```
 *
 * A record with a TTL expires in the database too (`expireAt`), within a second after that time, and so leaves no
 * space behind; Keyv itself hides it from the millisecond on. The database stays yours: `disconnect` does not close it.
 *
 * Give each Keyv with a namespace a `KeyvVarve` of its own, since Keyv writes its namespace into its store.
 *
 * Every call rejects with the errors of the database, such as `DatabaseClosedError`, and with a `TypeError`
 * (`VARVE_BAD_ARGUMENT`) for a TTL that is no number, or a value that Keyv was made not to serialize to text. Keyv reports these
 * by its event `"error"`, and rejects if it has the option `throwOnErrors`.
 */
export class KeyvVarve {
  /** Set by Keyv 5: what `clear` is limited to. */
  declare namespace?: string | undefined;
  /** Keyv 5 iterates only over stores with a dialect that it knows. */
  readonly opts: { readonly dialect: string; readonly url: string } & Record<string, unknown> = {
    dialect: "redis",
    url: "",
  };
  private readonly raw: Raw;
  private readonly prefix: string;

  /** @throws TypeError if `to` is no database, as `open` gives it, and no client, as `connect` gives it */
  constructor(to: object, { prefix = "keyv/" }: KeyvVarveOptions = {}) {
    this.raw = rawOf(to, "KeyvVarve", prefix);
    this.prefix = prefix;
  }

  // There is neither `has` nor `deleteMany`. Keyv then looks at values, which have milliseconds, and deletes key by
  // key, and so knows of each whether it was there.

  async get<Value>(key: string): Promise<Value | undefined> {
    return using(this.raw.get(this.prefix + key), textOf) as Value | undefined;
  }

  async getMany<Value>(keys: string[]): Promise<(Value | undefined)[]> {
    const found = this.raw.getMany(keys.map((key) => this.prefix + key));
    return using(found, (all) => all.map(textOf)) as (Value | undefined)[];
  }

  async set(key: string, value: unknown, ttl?: number): Promise<boolean> {
    await this.raw.set(this.prefix + key, serialized(value), expiryIn(ttl));
    return true;
  }

  /** Stores all of them or, if one is refused, none. */
  setMany(entries: readonly KeyvVarveEntry[]): Promise<boolean[]>;
  /** As Keyv 5 declares it. */
  setMany(entries: readonly KeyvVarveEntry[]): Promise<void>;
  async setMany(entries: readonly KeyvVarveEntry[]): Promise<unknown> {
    const all = entries.map(({ key, value, ttl }) => {
      return [this.prefix + key, serialized(value), expiryIn(ttl)] as const;
    });
    await this.raw.transaction((tx) => {
      for (const [key, value, expiry] of all) tx.set(key, value, expiry);
    });
    return all.map(() => true);
  }

  async delete(key: string): Promise<boolean> {
    return this.raw.delete(this.prefix + key);
  }

  /** Deletes everything below the prefix or, if Keyv has set one, in the namespace. */
  async clear(): Promise<void> {
    const { namespace, prefix } = this;
    await this.raw.clear({ prefix: namespace ? `${prefix}${namespace}:` : prefix });
  }

  /** The keys and values in the order of the keys, also while some are written. */
  async *iterator(namespace?: string): AsyncGenerator<[string, string | undefined], void> {
    const inside = namespace ? `${namespace}:` : "";
    for await (const [key, value] of entriesIn(this.raw, this.prefix + inside, textOf)) {
      yield [inside + key, value];
    }
  }

  /** There are no events: all errors reject calls. */
  on(): this {
    return this;
  }
}

function serialized(value: unknown): string {
  if (typeof value === "string") return value;
  throw refused(
    "KeyvVarve stores text. Leave Keyv's options serialize and serialization as they are, and let compression give text.",
    value,
  );
}
