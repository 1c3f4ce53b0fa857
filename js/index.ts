/**
 * varve: a web storage engine. `open` a database, then `get` a view of a value without a copy, change
 * it in place with `updateIf`, and have it survive a crash.
 */

export type { Bytes, Key, Value } from "./bytes.js";
export type {
  Client,
  ClientOf,
  RemoteEntry,
  RemoteSetOptions,
  RemoteUpdateOptions,
} from "./client/client.js";
export type {
  Condition,
  RemoteCollection,
  RemoteIndex,
  RemoteTypedUpdateOptions,
  Update,
  Updated,
} from "./client/collection.js";
export { type ConnectOptions, connect } from "./client/connect.js";
export type { CallOptions, ClientStatus, WorkerLike } from "./client/link.js";
export type { Procedure, Procedures } from "./client/operations.js";
export type { RetryOptions, Tx, TxPart } from "./client/optimistic.js";
export type { ClientProgress } from "./client/progress.js";
export type { RemoteScan } from "./client/scan.js";
export { type Served, type ServedPort, type ServeOptions, serve } from "./client/serve.js";
export type { CollectionSpec, CollectionSpecs } from "./client/served.js";
export type { Calls, Collections, Nothing, Remoted, ServedTypes, TxOf } from "./client/types.js";
export type { KeyChange, Watching, WatchOptions } from "./client/watch.js";
export type {
  Collection,
  CollectionEntry,
  CollectionOperation,
  CollectionOptions,
  IndexesOf,
  MigrateOptions,
} from "./collection/collection.js";
export type { IndexSpec, IndexSpecs, IndexValue } from "./collection/indexes.js";
export type { KeyRange } from "./collection/keys.js";
export type {
  LinesOptions,
  LinesProgress,
  LinesSource,
  ToLinesOptions,
} from "./collection/lines.js";
export type { Index, IndexRange } from "./collection/lookup.js";
export type { MigrateProgress } from "./collection/migrate.js";
export type { Ref } from "./collection/ref.js";
export type { TypedUpdateOptions } from "./collection/write.js";
export type { Database } from "./database.js";
export type { BatchOperation, Synchronous } from "./database-writes.js";
export type { Loss, Problem, ProblemKind, Recovery, Verification } from "./engine-reports.js";
export {
  type BadArgumentError,
  ConflictError,
  type CorruptionDetails,
  CorruptionError,
  DatabaseBusyError,
  DatabaseClosedError,
  DatabaseExistsError,
  DatabaseNotFoundError,
  DatabasePoisonedError,
  FileLostError,
  MalformedValueError,
  OptionsMismatchError,
  OutOfMemoryError,
  OwnerUnavailableError,
  QuotaExceededError,
  ReadOnlyError,
  ReentrancyError,
  SchemaMismatchError,
  StaleViewError,
  StorageError,
  StorageUnavailableError,
  UniqueViolationError,
  UnsupportedFormatError,
  VarveError,
  type VarveErrorOptions,
  VersionChangedError,
} from "./errors.js";
export { open } from "./open.js";
export type {
  CompactOptions,
  CompactProgress,
  Durability,
  ExportOptions,
  ExportProgress,
  OpenOptions,
  OpenProgress,
  VerifyOptions,
  VerifyProgress,
} from "./options.js";
export type { Pin } from "./pin.js";
export { databases, destroy, persist, type StorageOptions } from "./places.js";
export type { ByteRange, Range, TextRange } from "./range.js";
export type { Scan, Walker } from "./scan.js";
export type {
  Change,
  DatabaseStats,
  Entry,
  Predicate,
  SetOptions,
  UpdateOptions,
} from "./session.js";
export type {
  FileBeside,
  OpenedStorage,
  OpenMode,
  Persistence,
  Storage,
  StorageFile,
  StorageRoom,
} from "./storage/contract.js";
export { type DurableObjectStorageLike, durableObject } from "./storage/durable-object.js";
export type { ImageSource } from "./storage/image.js";
export { memory } from "./storage/memory.js";
export { file } from "./storage/node.js";
export { opfs } from "./storage/opfs.js";
export type {
  Codec,
  CustomCodec,
  Declared,
  Descriptor,
  Memory,
  StructCodec,
  Structure,
} from "./struct/codec.js";
export type { WasmSource } from "./wasm/load.js";
