/** What the race runs, as plain data: the stores, the workloads, and how long a quick look and a full race take. */

export const STORE_IDS = [
  "varve-buffered",
  "varve",
  "varve-flushed",
  "sqlite",
  "indexeddb",
  "indexeddb-naive",
  "dexie",
  "idb-keyval",
  "localforage",
  "map",
] as const;
export type StoreId = (typeof STORE_IDS)[number];

export interface StoreInfo {
  id: StoreId;
  name: string;
  /** What an acknowledged write survives: a crash is that of the tab or the browser. */
  survives: "nothing" | "a crash, after 5 ms" | "a crash" | "a power loss";
  /** The same in a sentence. */
  durability: string;
  /** How it is set up and called. */
  settings: string;
}

/** The store that all others are compared with, in words. */
export const REFERENCE: StoreId = "varve";

const RELAXED = "survives a crash of the tab or browser";

export const STORES: readonly StoreInfo[] = [
  {
    id: "varve-buffered",
    name: "varve, buffered",
    survives: "a crash, after 5 ms",
    durability: "survives a crash of the tab or browser once it is in the file, within 5 ms",
    settings:
      'durability "buffered", 16 MiB of memory; what is still in memory is written before the clock stops',
  },
  {
    id: "varve",
    name: "varve, written",
    survives: "a crash",
    durability: RELAXED,
    settings: 'durability "written", which is the default, 16 MiB of memory',
  },
  {
    id: "varve-flushed",
    name: "varve, flushed",
    survives: "a power loss",
    durability: "survives a power loss, as far as the device's flush holds",
    settings: 'durability "flushed", 16 MiB of memory',
  },
  {
    id: "sqlite",
    name: "SQLite (wasm)",
    survives: "a crash",
    durability: RELAXED,
    settings:
      "its pool of OPFS files, WAL, synchronous normal, exclusive locking, 16 MiB of cache, statements prepared once",
  },
  {
    id: "indexeddb",
    name: "IndexedDB, tuned",
    survives: "a crash",
    durability: RELAXED,
    settings:
      "relaxed durability; all requests of a transaction are made at once, and the commit is asked for",
  },
  {
    id: "indexeddb-naive",
    name: "IndexedDB, naive",
    survives: "a crash",
    durability:
      "survives what the browser's default survives: in most, a crash of the tab or browser",
    settings: "a transaction for each request, and each is awaited",
  },
  {
    id: "dexie",
    name: "Dexie",
    survives: "a crash",
    durability: RELAXED,
    settings: "relaxed durability; its bulk calls, in one transaction",
  },
  {
    id: "idb-keyval",
    name: "idb-keyval",
    survives: "a crash",
    durability:
      "survives what the browser's default survives: in most, a crash of the tab or browser",
    settings: "getMany, setMany and delMany; update, where a record is changed",
  },
  {
    id: "localforage",
    name: "localForage",
    survives: "a crash",
    durability:
      "survives what the browser's default survives: in most, a crash of the tab or browser",
    settings: "its driver for IndexedDB; it has single calls only, which are made at once",
  },
  {
    id: "map",
    name: "Map, no storage",
    survives: "nothing",
    durability: "survives nothing: it is gone with the tab; this is the ceiling, not a store",
    settings: "a JavaScript Map of byte arrays in memory",
  },
];

export const WORKLOAD_IDS = [
  "drop-first-raw",
  "drop-first-typed",
  "drop-raw",
  "drop-typed",
  "drop-each",
  "load-sequential",
  "load-random",
  "get-sequential",
  "get-random",
  "get-zipfian",
  "update-sequential",
  "update-random",
  "update-zipfian",
  "write-each",
  "delete-sequential",
  "delete-random",
  "mixed",
  "range",
  "large-write",
  "large-read",
  "page-get",
  "page-set",
  "cold-list",
] as const;
export type WorkloadId = (typeof WORKLOAD_IDS)[number];

/**
 * Where a workload is measured: in the store's worker, which stays; in a new worker for each sample, with nothing
 * loaded or compiled; or on the page.
 */
export type Setting = "worker" | "new worker" | "page";

export interface WorkloadInfo {
  id: WorkloadId;
  group: string;
  title: string;
  /** One sentence: what is measured. */
  measures: string;
  /** What the times are of. */
  unit: string;
  /** When its writes count as done. */
  commits: string;
  setting: Setting;
  /** Whether the quick look has it. */
  quick: boolean;
}

const DROP = "The product drop";
const RECORDS = "Single records";
const MORE = "Mixes, ranges, large values";
const PAGE = "From the page";

const HUNDRED = "a commit for each 100";
const READS = "nothing is written";

export const WORKLOADS: readonly WorkloadInfo[] = [
  {
    id: "drop-first-raw",
    group: DROP,
    title: "Bytes, first time",
    measures:
      "The first drop of a new worker, whose code is not compiled yet: each buyer reads stock and name of one product and takes one.",
    unit: "a buyer",
    commits: "one commit for all buyers",
    setting: "new worker",
    quick: false,
  },
  {
    id: "drop-first-typed",
    group: DROP,
    title: "Typed records, first time",
    measures:
      "The same with the record that the store offers: fields of a schema, columns, or an object.",
    unit: "a buyer",
    commits: "one commit for all buyers",
    setting: "new worker",
    quick: false,
  },
  {
    id: "drop-raw",
    group: DROP,
    title: "Bytes, warm",
    measures:
      "Each buyer reads stock and name of one product, stored as 30 bytes, and takes one, in code that has run before.",
    unit: "a buyer",
    commits: "one commit for all buyers, where the store can",
    setting: "worker",
    quick: true,
  },
  {
    id: "drop-typed",
    group: DROP,
    title: "Typed records, warm",
    measures:
      "The same with the record that the store offers: fields of a schema, columns, or an object.",
    unit: "a buyer",
    commits: "one commit for all buyers, where the store can",
    setting: "worker",
    quick: false,
  },
  {
    id: "drop-each",
    group: DROP,
    title: "A commit for each buyer",
    measures: "Each purchase is committed and acknowledged before the next buyer comes.",
    unit: "a buyer",
    commits: "a commit for each",
    setting: "worker",
    quick: true,
  },
  {
    id: "load-sequential",
    group: RECORDS,
    title: "Load, in order",
    measures: "New records of 100 bytes are stored behind all others, in the order of their keys.",
    unit: "a record",
    commits: HUNDRED,
    setting: "worker",
    quick: true,
  },
  {
    id: "load-random",
    group: RECORDS,
    title: "Load, random order",
    measures: "New records of 100 bytes are stored between those that are there.",
    unit: "a record",
    commits: HUNDRED,
    setting: "worker",
    quick: false,
  },
  {
    id: "get-sequential",
    group: RECORDS,
    title: "Get, in order",
    measures: "Records of 100 bytes are read by their keys, one after the other.",
    unit: "a record",
    commits: READS,
    setting: "worker",
    quick: false,
  },
  {
    id: "get-random",
    group: RECORDS,
    title: "Get, random",
    measures: "Records of 100 bytes are read by keys in random order.",
    unit: "a record",
    commits: READS,
    setting: "worker",
    quick: true,
  },
  {
    id: "get-zipfian",
    group: RECORDS,
    title: "Get, zipfian",
    measures: "Records are read by keys of which few are frequent, as on a real site.",
    unit: "a record",
    commits: READS,
    setting: "worker",
    quick: false,
  },
  {
    id: "update-sequential",
    group: RECORDS,
    title: "Update, in order",
    measures: "A record is read, four of its bytes are changed, and it is stored again.",
    unit: "a record",
    commits: HUNDRED,
    setting: "worker",
    quick: false,
  },
  {
    id: "update-random",
    group: RECORDS,
    title: "Update, random",
    measures: "A record is read, four of its bytes are changed, and it is stored again.",
    unit: "a record",
    commits: HUNDRED,
    setting: "worker",
    quick: true,
  },
  {
    id: "update-zipfian",
    group: RECORDS,
    title: "Update, zipfian",
    measures: "The same with keys of which few are frequent.",
    unit: "a record",
    commits: HUNDRED,
    setting: "worker",
    quick: false,
  },
  {
    id: "write-each",
    group: RECORDS,
    title: "Write, a commit for each",
    measures: "A record is overwritten, and acknowledged before the next one is.",
    unit: "a record",
    commits: "a commit for each",
    setting: "worker",
    quick: false,
  },
  {
    id: "delete-sequential",
    group: RECORDS,
    title: "Delete, in order",
    measures: "Records are deleted in the order of their keys.",
    unit: "a record",
    commits: HUNDRED,
    setting: "worker",
    quick: false,
  },
  {
    id: "delete-random",
    group: RECORDS,
    title: "Delete, random",
    measures: "Records are deleted in random order.",
    unit: "a record",
    commits: HUNDRED,
    setting: "worker",
    quick: false,
  },
  {
    id: "mixed",
    group: MORE,
    title: "Mixed 70/20/10",
    measures: "Of 100 operations 70 read, 20 update, and 10 insert or delete; keys are zipfian.",
    unit: "an operation",
    commits: HUNDRED,
    setting: "worker",
    quick: true,
  },
  {
    id: "range",
    group: MORE,
    title: "Ranges of 50",
    measures: "From a random key on, the next 50 records are read, keys and values.",
    unit: "a range",
    commits: READS,
    setting: "worker",
    quick: true,
  },
  {
    id: "large-write",
    group: MORE,
    title: "Large values, written",
    measures: "Values of 256 KiB are overwritten.",
    unit: "a value",
    commits: "a commit for each",
    setting: "worker",
    quick: false,
  },
  {
    id: "large-read",
    group: MORE,
    title: "Large values, read",
    measures:
      "Values of 256 KiB are read, and their first and last byte looked at; a store that gives a view copies nothing.",
    unit: "a value",
    commits: READS,
    setting: "worker",
    quick: false,
  },
  {
    id: "page-get",
    group: PAGE,
    title: "Round trip, read",
    measures:
      "The page reads a record and awaits it: from its worker (varve, SQLite, Map), or by its own calls (IndexedDB).",
    unit: "a read",
    commits: READS,
    setting: "page",
    quick: true,
  },
  {
    id: "page-set",
    group: PAGE,
    title: "Round trip, write",
    measures: "The page writes a record and awaits its acknowledgement, one after the other.",
    unit: "a write",
    commits: "a commit for each",
    setting: "page",
    quick: false,
  },
  {
    id: "cold-list",
    group: PAGE,
    title: "Cold open and first list",
    measures:
      "A new worker loads and compiles the store's code, opens the database, and reads its first 10 records.",
    unit: "an open and a list",
    commits: READS,
    setting: "new worker",
    quick: true,
  },
];

export function storeInfo(id: StoreId): StoreInfo {
  return STORES.find((store) => store.id === id)!;
}

export function workloadInfo(id: WorkloadId): WorkloadInfo {
  return WORKLOADS.find((workload) => workload.id === id)!;
}

/** How much is done, and for how long. */
export interface Extent {
  /** Records in each store. */
  records: number;
  /** Operations in a pass of a workload. */
  operations: number;
  /** Buyers of a first drop. */
  firstBuyers: number;
  /** Milliseconds of warm-up for each store and workload. */
  warmupMs: number;
  /** Milliseconds of a store's turn in a round. */
  turnMs: number;
  /** Rounds before the spread is looked at. */
  leastRounds: number;
  mostRounds: number;
  /** Milliseconds that the race takes at most, apart from what it has begun by then. */
  budgetMs: number;
}

export type Length = "quick" | "full";

export const EXTENTS: Record<Length, Extent> = {
  quick: {
    records: 1_000,
    operations: 200,
    firstBuyers: 500,
    warmupMs: 15,
    turnMs: 12,
    leastRounds: 3,
    mostRounds: 5,
    budgetMs: 14_500,
  },
  full: {
    records: 10_000,
    operations: 2_000,
    firstBuyers: 2_000,
    warmupMs: 250,
    turnMs: 150,
    leastRounds: 5,
    mostRounds: 15,
    budgetMs: 540_000,
  },
};
