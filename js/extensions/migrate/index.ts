/** varve/migrate: moves the data of other stores into a database, and compares both before it says that it is done. */

export { DatabaseNotFoundError, VarveError } from "../../errors/index.js";
export { MigrationError, type MigrationPlace } from "./errors.js";
export {
  describeIndexedDB,
  type FromIndexedDBOptions,
  fromIndexedDB,
  type StoreDescription,
  type StoreIndex,
} from "./indexeddb.js";
export {
  type FromLocalStorageOptions,
  fromLocalStorage,
  type TextStorage,
} from "./local-storage.js";
export type { Mapping, Migrated, MigrationOptions, MigrationProgress, MovedStore } from "./run.js";
export { type FromSQLiteOptions, fromSQLite, type Rows } from "./sqlite.js";
export type { AnyCollection, AnyDatabase } from "./target.js";
