/** varve/client: what a page needs. The engine is not part of it; the worker loads that. */

export type { KeyRange } from "../collection/keys.js";
export type { IndexRange } from "../collection/lookup.js";
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
  UnsupportedFormatError,
  VarveError,
  type VarveErrorOptions,
  VersionChangedError,
} from "../errors.js";
export {
  Client,
  type ClientOf,
  type RemoteEntry,
  type RemoteSetOptions,
  type RemoteUpdateOptions,
} from "./client.js";
export type {
  Condition,
  RemoteCollection,
  RemoteIndex,
  RemoteTypedUpdateOptions,
  Update,
  Updated,
} from "./collection.js";
export { type ConnectOptions, connect } from "./connect.js";
export type { CallOptions, ClientStatus, WorkerLike } from "./link.js";
export type { RetryOptions, Tx, TxPart } from "./optimistic.js";
export type { ClientProgress } from "./progress.js";
export type { RemoteScan } from "./scan.js";
export type {
  Calls,
  Collections,
  Copied,
  Nothing,
  Remote,
  Remoted,
  ServedTypes,
  TxOf,
} from "./types.js";
export type { KeyChange, Watching, WatchOptions } from "./watch.js";
