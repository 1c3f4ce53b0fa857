/**
 * varve: a web storage engine. `open` a database, then `get` a view of a value without a copy, change
 * it in place with `updateIf`, and have it survive a crash.
 */

export type {
  Client,
  ClientOf,
  RemoteEntry,
  RemoteSetOptions,
  RemoteUpdateOptions,
} from "./client/client.js";
export { type ConnectOptions, connect } from "./client/connect.js";
export type { CallOptions, ClientStatus, WorkerLike } from "./client/connection/caller.js";
export type { RemoteTransactionOptions, RetryOptions, Tx, TxPart } from "./client/optimistic.js";
export type { RemoteLogGap, RemoteLogHead, RemoteLogRecord } from "./client/protocol/log-pages.js";
export type { ClientProgress } from "./client/protocol/messages.js";
export type {
  Condition,
  RemoteCollection,
  RemoteIndex,
  RemoteIndexViews,
  RemoteTypedUpdateOptions,
  RemoteViews,
  Update,
  Updated,
} from "./client/remote-collection.js";
export type {
  RemoteLogDamage,
  RemoteLogItem,
  RemoteLogOptions,
  RemoteLogTransaction,
} from "./client/remote-log.js";
export type { RemoteScan } from "./client/remote-scan.js";
export type {
  Calls,
  Collections,
  Nothing,
  RemoteCollectionOf,
  ServedTypes,
  TxOf,
} from "./client/types.js";
export type { CollectionSpec, CollectionSpecs } from "./client/worker/collection-handlers.js";
export type { Procedure, Procedures } from "./client/worker/handlers.js";
export { type Served, type ServedPort, type ServeOptions, serve } from "./client/worker/serve.js";
export type {
  Collection,
  CollectionEntry,
  CollectionOperation,
  CollectionOptions,
  IndexesOf,
  MigrateOptions,
} from "./collection/collection.js";
export type { Index, IndexRange } from "./collection/index-query.js";
export type {
  IndexSpec,
  IndexSpecs,
  IndexValue,
  PlainIndexSpec,
  StructIndexSpec,
} from "./collection/indexes.js";
export type {
  LinesOptions,
  LinesProgress,
  LinesSource,
  ToLinesOptions,
} from "./collection/json-lines.js";
export type { KeyRange } from "./collection/keys.js";
export type { MigrateProgress } from "./collection/migrate.js";
export type { Ref } from "./collection/record-ref.js";
export type { TypedUpdateOptions } from "./collection/writes.js";
export type {
  ChangesOptions,
  FollowedRecord,
  FollowedTransaction,
  FollowOptions,
} from "./database/changes.js";
export type { BatchOperation, Database, Synchronous } from "./database/database.js";
export type { LogOptions } from "./database/log-options.js";
export type {
  LogDamage,
  LogGap,
  LogItem,
  LogRecord,
  LogTransaction,
} from "./database/log-records.js";
export { open } from "./database/open.js";
export type { PackOptions } from "./database/pack.js";
export type { CollectionReader, Snapshot } from "./database/snapshot.js";
export { databases, destroy, persist, type StorageOptions } from "./database/storage-admin.js";
export type { UndoOptions } from "./database/undo.js";
export type { WasmSource } from "./engine/load-wasm.js";
export type {
  History,
  Loss,
  Problem,
  ProblemKind,
  Recovery,
  Verification,
} from "./engine/reports.js";
export {
  type BadArgumentError,
  ConflictError,
  type CorruptionDetails,
  CorruptionError,
  CursorExpiredError,
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
  SnapshotClosedError,
  StaleViewError,
  StorageError,
  StorageUnavailableError,
  UniqueViolationError,
  UnsupportedFormatError,
  VarveError,
  type VarveErrorOptions,
  VersionChangedError,
} from "./errors/index.js";
export type { Scan, Walker } from "./session/cursor.js";
export type { ExpiryOptions } from "./session/expiry.js";
export type { ByteRange, Range, TextRange } from "./session/key-range.js";
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
} from "./session/options.js";
export type { Pin } from "./session/pinned-value.js";
export type {
  Change,
  DatabaseStats,
  Entry,
  Predicate,
  RetainMark,
  SetOptions,
  TransactionOptions,
  UpdateOptions,
} from "./session/session.js";
export type { KeyChange, Watching, WatchOptions } from "./session/watching.js";
export type { ImageSource } from "./storage/bytes.js";
export { type DurableObjectStorageLike, durableObject } from "./storage/durable-object.js";
export { memory } from "./storage/memory.js";
export { file } from "./storage/node/index.js";
export { opfs } from "./storage/opfs.js";
export type {
  OpenedStorage,
  OpenMode,
  Persistence,
  ReplacementFile,
  Storage,
  StorageEstimate,
  StorageFile,
} from "./storage/storage.js";
export type {
  Codec,
  CustomCodec,
  Declared,
  Descriptor,
  Memory,
  StructCodec,
  Structure,
} from "./struct/codec.js";
export type { Bytes, Key, Value } from "./util/bytes.js";
