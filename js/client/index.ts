/** varve/client: the client for pages, without the engine, which the worker loads. */

export type { IndexRange } from "../collection/index-query.js";
export type { KeyRange } from "../collection/keys.js";
export type { FollowedRecord, FollowedTransaction } from "../database/changes.js";
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
} from "../errors/index.js";
export type { ExpiryOptions } from "../session/expiry.js";
export type { KeyChange, Watching, WatchOptions } from "../session/watching.js";
export {
  Client,
  type ClientOf,
  type RemoteEntry,
  type RemoteSetOptions,
  type RemoteUpdateOptions,
} from "./client.js";
export { type ConnectOptions, connect } from "./connect.js";
export type { CallOptions, ClientStatus, WorkerLike } from "./connection/caller.js";
export type { RemoteTransactionOptions, RetryOptions, Tx, TxPart } from "./optimistic.js";
export type { RemoteLogGap, RemoteLogHead, RemoteLogRecord } from "./protocol/log-pages.js";
export type { ClientProgress } from "./protocol/messages.js";
export type {
  Condition,
  RemoteCollection,
  RemoteIndex,
  RemoteIndexViews,
  RemoteTypedUpdateOptions,
  RemoteViews,
  Update,
  Updated,
} from "./remote-collection.js";
export {
  type AnyClient,
  changes,
  follow,
  lastCommit,
  pack,
  type RemoteChangesOptions,
  type RemoteFollowOptions,
  type RemotePackOptions,
  type RemoteUndoOptions,
  undo,
} from "./remote-history.js";
export type {
  RemoteLogDamage,
  RemoteLogItem,
  RemoteLogOptions,
  RemoteLogTransaction,
} from "./remote-log.js";
export type { RemoteScan } from "./remote-scan.js";
export {
  at,
  type RemoteCollectionReader,
  type RemoteSnapshot,
  type RemoteSnapshotOptions,
  snapshot,
} from "./remote-snapshot.js";
export type {
  Calls,
  Collections,
  Copied,
  Nothing,
  Remote,
  RemoteCollectionOf,
  ServedTypes,
  TxOf,
} from "./types.js";
