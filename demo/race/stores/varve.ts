import { type Database, type Durability, open, opfs } from "varve";
import { type Infer, str, struct, u16 } from "varve/struct";
import {
  nameIs,
  PRODUCT_KEY,
  PRODUCT_NAME,
  type Product,
  readProduct,
  restock,
  stockOf,
  takeOne,
} from "../../drop.js";
import {
  DELETE,
  type Driver,
  GET,
  INSERT,
  type Kind,
  looked,
  type Mixed,
  type Pair,
  refused,
  type Store,
  writeStamp,
} from "../store.js";

/** As much as SQLite's cache gets, so that a phone can hold all stores of the race. */
export const MEMORY = 16 * 1_048_576;

const FOLDER = "varve-race";
const NAME = new TextEncoder().encode(PRODUCT_NAME);

const Shoe = struct("Product", { stock: u16, name: str });
type Shoe = Infer<typeof Shoe>;

function shoes(db: Database) {
  return db.collection("products", Shoe);
}

class VarveStore implements Store {
  readonly #shoes: ReturnType<typeof shoes>;

  constructor(private readonly db: Database) {
    this.#shoes = shoes(db);
  }

  /** The end of a turn, as the durability wants it: the harness does not yield after each. */
  #commit(): void {
    if (this.db.durability === "flushed") this.db.flush();
    else if (this.db.durability === "written") this.db.commit();
  }

  gets(keys: readonly string[], from: number, to: number): number {
    let sum = 0;
    for (let i = from; i < to; i++) sum += looked(this.db.get(keys[i]!)!);
    return sum;
  }

  sets(keys: readonly string[], values: readonly Uint8Array[], from: number, to: number): void {
    for (let i = from; i < to; i++) this.db.set(keys[i]!, values[i]!);
    this.#commit();
  }

  updates(keys: readonly string[], from: number, to: number, stamp: number): number {
    let sum = 0;
    const change = (value: Uint8Array) => {
      sum += looked(value);
      writeStamp(value, stamp);
    };
    for (let i = from; i < to; i++) this.db.updateIf(keys[i]!, change);
    this.#commit();
    return sum;
  }

  deletes(keys: readonly string[], from: number, to: number): void {
    for (let i = from; i < to; i++) this.db.delete(keys[i]!);
    this.#commit();
  }

  mixed({ kinds, keys, values }: Mixed, from: number, to: number, stamp: number): number {
    const { db } = this;
    const change = (value: Uint8Array) => writeStamp(value, stamp);
    let sum = 0;
    for (let i = from; i < to; i++) {
      const kind = kinds[i];
      if (kind === GET) sum += looked(db.get(keys[i]!)!);
      else if (kind === INSERT) db.set(keys[i]!, values[i]!);
      else if (kind === DELETE) db.delete(keys[i]!);
      else db.updateIf(keys[i]!, change);
    }
    this.#commit();
    return sum;
  }

  ranges(starts: readonly string[], from: number, to: number, limit: number): number {
    let sum = 0;
    for (let i = from; i < to; i++) {
      for (const [key, value] of this.db.entries({ gte: starts[i]!, limit })) {
        sum += key.length + looked(value);
      }
    }
    return sum;
  }

  list(limit: number): Pair[] {
    return [...this.#copies(limit)];
  }

  pairs(): Pair[] {
    return [...this.#copies()];
  }

  *#copies(limit = Number.POSITIVE_INFINITY): Generator<Pair> {
    const range = Number.isFinite(limit) ? { limit } : {};
    for (const [key, value] of this.db.entries(range)) yield [key, value.slice()];
  }

  restock(kind: Kind, stock: number): void {
    if (kind === "raw") restock(this.db, stock - 1);
    else this.#shoes.set(PRODUCT_KEY, { stock, name: PRODUCT_NAME });
    this.db.commit();
  }

  buy(kind: Kind, buyers: number, commitEach: boolean): void {
    if (kind === "raw") this.#buyRaw(buyers, commitEach);
    else this.#buyTyped(buyers, commitEach);
    this.#commit();
  }

  #buyRaw(buyers: number, commitEach: boolean): void {
    const { db } = this;
    const inStock = { predicate: (record: Uint8Array) => stockOf(record) > 0 };
    for (let buyer = 0; buyer < buyers; buyer++) {
      const record = db.get(PRODUCT_KEY);
      if (record === undefined || stockOf(record) === 0 || !nameIs(record, NAME))
        throw refused(buyer);
      if (!db.updateIf(PRODUCT_KEY, takeOne, inStock)) throw refused(buyer);
      if (commitEach) this.#commit();
    }
  }

  #buyTyped(buyers: number, commitEach: boolean): void {
    const inStock = { predicate: (shoe: Shoe) => shoe.stock > 0 };
    const take = (shoe: Shoe) => {
      shoe.stock -= 1;
    };
    for (let buyer = 0; buyer < buyers; buyer++) {
      const shoe = this.#shoes.get(PRODUCT_KEY);
      if (shoe === undefined || shoe.stock === 0 || shoe.name !== PRODUCT_NAME)
        throw refused(buyer);
      if (!this.#shoes.updateIf(PRODUCT_KEY, take, inStock)) throw refused(buyer);
      if (commitEach) this.#commit();
    }
  }

  product(kind: Kind): Product | undefined {
    if (kind === "raw") return this.db.has(PRODUCT_KEY) ? readProduct(this.db) : undefined;
    return this.#shoes.get(PRODUCT_KEY)?.snapshot();
  }

  settle(): void {
    if (this.db.durability === "buffered") this.db.commit();
  }

  async rest(): Promise<void> {
    await this.db.flushed;
  }

  close(): Promise<void> {
    return this.db.close();
  }
}

function folderOf(durability: Durability): string {
  return `${FOLDER}-${durability}`;
}

export function varve(durability: Durability): Driver {
  const storage = opfs(folderOf(durability));
  return {
    async open(name) {
      return new VarveStore(await open(name, { storage, durability, memory: MEMORY }));
    },
    async remove() {
      const root = await navigator.storage.getDirectory();
      await root.removeEntry(folderOf(durability), { recursive: true }).catch((error: unknown) => {
        if (!(error instanceof DOMException && error.name === "NotFoundError")) throw error;
      });
    },
  };
}
