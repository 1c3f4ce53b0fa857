/**
 * varve: a web storage engine. `open` a database, then `get` a view of a value without a copy, change
 * it in place with `updateIf`, and have it survive a crash.
 */

export type { Bytes, Key, Value } from "./bytes.js";
export type { BatchOperation, Database, DatabaseStats, Synchronous } from "./database.js";
export { open } from "./database.js";
export type { Recovery } from "./engine.js";
export {
  type BadArgumentError,
  ConflictError,
  type CorruptionDetails,
  CorruptionError,
  DatabaseBusyError,
  DatabaseClosedError,
  DatabaseExistsError,
  DatabasePoisonedError,
  OptionsMismatchError,
  OutOfMemoryError,
  OwnerUnavailableError,
  QuotaExceededError,
  ReentrancyError,
  SchemaMismatchError,
  StaleViewError,
  StorageError,
  StorageUnavailableError,
  UnsupportedFormatError,
  VarveError,
  type VarveErrorOptions,
  VersionChangedError,
} from "./errors.js";
export type { Durability, OpenOptions } from "./options.js";
export type { Change, Predicate, UpdateOptions } from "./session.js";
export type { OpenedStorage, Storage, StorageFile } from "./storage/contract.js";
export { memory } from "./storage/memory.js";
export { file } from "./storage/node.js";
export { opfs } from "./storage/opfs.js";
export type { WasmSource } from "./wasm/load.js";
