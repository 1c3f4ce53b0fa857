/**
 * `varve/protocol`: both halves of the protocol between clients and owners, without ports, timers and files.
 * For programs that carry its messages by other means, and for the tests that try every order of events.
 */

export { type Heard, WatchList } from "./client-subscriptions.js";
export {
  LEASE_MS as WATCH_LEASE_MS,
  type Subscription,
  Subscriptions,
} from "./leader-subscriptions.js";
export type {
  Answer,
  Ask,
  Gone,
  Here,
  Outcome,
  Request,
  Seen,
  ToClient,
  Told,
  ToOwner,
  Watch,
  Who,
  WireError,
} from "./messages.js";
export { buildName, type Standing, standingOf } from "./messages.js";
export { type Journal, LEASE_MS, Ledger, type Reply } from "./request-log.js";
export {
  type Ending,
  GRACE_MS,
  type Order,
  Sender,
  type SenderPort,
  SILENCE_MS,
} from "./request-queue.js";
