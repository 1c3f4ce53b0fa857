/**
 * `varve/protocol`: both halves of the protocol between clients and owners, without ports, timers and files.
 * For programs that carry its messages by other means, and for the tests that try every order of events.
 */

export { KeptRows } from "../../session/kept-rows.js";
export { type ChangeListener, type RowsListener, WatchList } from "./client-subscriptions.js";
export type {
  Answer,
  ChangedRows,
  Outcome,
  OwnerAnnouncement,
  OwnerQuery,
  OwnerResignation,
  Request,
  RequestBatch,
  ResponseBatch,
  ToClient,
  ToOwner,
  Watch,
  WatchUpdate,
  WireError,
} from "./messages.js";
export { type BuildOrder, buildName, compareBuilds } from "./messages.js";
export {
  type Subscription,
  Subscriptions,
  WATCH_LEASE_MS,
} from "./owner-subscriptions.js";
export { buffersOf, PackedRows } from "./packed-rows.js";
export {
  CLIENT_RECORD_LEASE_MS,
  type ClientRecordStore,
  type Reply,
  RequestLog,
} from "./request-log.js";
export {
  GRACE_MS,
  type NewRequest,
  OWNER_QUERY_MS,
  RequestQueue,
  type RequestQueuePort,
  type Settlement,
} from "./request-queue.js";
