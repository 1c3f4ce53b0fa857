/**
 * The messages between clients and owners. A client is one `connect` of one page or worker; the owner is the
 * worker that has the file. Everything here can be cloned from one realm to another.
 */

import type { MigrateProgress } from "../../collection/migrate.js";
import type {
  CompactProgress,
  ExportProgress,
  OpenProgress,
  VerifyProgress,
} from "../../session/options.js";
import { cloneArgs, isBytes } from "./clone.js";
import type { RowsAnswer } from "./packed-rows.js";

/** Long work of the worker that has the database, and its progress. */
export type ClientProgress =
  | OpenProgress
  | ({ readonly doing: "migrating" } & MigrateProgress)
  | ({ readonly doing: "compacting" | "packing" } & CompactProgress)
  | ({ readonly doing: "verifying" } & VerifyProgress)
  | ({ readonly doing: "exporting" } & ExportProgress);

/** The version of this protocol. */
export const PROTOCOL = 6;

/** How another build of the application compares with this one. */
export type BuildOrder = "same" | "newer" | "older" | "other";

/** Identifies a build: the application's version, the version of the protocol, and a digest of its schemas. */
export function buildName(version: number, digest: string): string {
  return `${version}.${PROTOCOL}.${digest}`;
}

/**
 * How the build `otherBuild` compares with `ownBuild`. Builds with the same versions and other schemas are
 * `"other"`: neither newer nor older.
 */
export function compareBuilds(ownBuild: string, otherBuild: string): BuildOrder {
  if (ownBuild === otherBuild) return "same";
  const [ownParts, otherParts] = [ownBuild.split("."), otherBuild.split(".")];
  for (const i of [0, 1]) {
    const difference = Number(otherParts[i]) - Number(ownParts[i]);
    if (difference !== 0) return difference > 0 ? "newer" : "older";
  }
  return "other";
}

/** A request. `worker/handlers.ts` defines the arguments of each call. */
export interface Request {
  /** The client's number for the request, which its answer carries. */
  readonly id: number;
  /**
   * 0 for a request that only reads. The writes of a client are numbered from 1 without gaps. They are
   * applied in that order, each at most once.
   */
  readonly write: number;
  /** The number of the client's last write before this request. That write has to be applied first. */
  readonly after: number;
  /** The time after which no owner applies it, in milliseconds by the clock of the owner that it is sent to. */
  readonly deadline: number;
  /** The name of the call; empty if the client has given the request up, so that nothing is to be done. */
  readonly call: string;
  /** The arguments of the call. */
  readonly args: readonly unknown[];
  /**
   * 1 for a procedure that an owner had when it hung: the next owner reports it to its page before it calls it.
   * 2 if that owner hung too: the procedure is not called again.
   */
  readonly hangCount?: number;
}

/** The name of the method that the caller used. */
export function callName({ call, args }: Pick<Request, "call" | "args">): string {
  if (call === "in") return String(args[1]);
  return call === "commitIf" ? "transaction" : call;
}

/** An error as it is sent to another realm. */
export interface WireError {
  readonly name: string;
  readonly message: string;
  readonly code?: string | undefined;
  readonly stack?: string | undefined;
  /** Other properties that its class has. */
  readonly more?: Readonly<Record<string, unknown>> | undefined;
  readonly cause?: unknown;
}

/** The outcome of a request. */
export type Outcome =
  | { readonly value: unknown }
  | { readonly error: WireError }
  /** The request was applied, and its answer was not kept: it came too late or was too large. */
  | { readonly forgotten: true };

/** The outcome of a request, with the request's number. */
export interface Answer {
  readonly id: number;
  readonly outcome: Outcome;
}

/** Requests that were made in one task: one message and one commit. */
export interface RequestBatch {
  readonly type: "requests";
  /** The client's build, as by `buildName`. An owner refuses requests of another build than its own. */
  readonly build: string;
  /** The number of owners that the client has known. */
  readonly term: number;
  /** The client's number, chosen at random once for each client. */
  readonly client: number;
  /** The client needs no more answers to its writes up to this number. */
  readonly acknowledged: number;
  readonly requests: readonly Request[];
}

/** Asks for the present owner, which answers with an `OwnerAnnouncement`. */
export interface OwnerQuery {
  readonly type: "find-owner";
  /** Returned by the owner. Every message posted to it before has then been seen, or is lost. */
  readonly round: number;
  readonly client: number;
}

/** Watches a range from now on. It is repeated regularly, and sent to every new owner. */
export interface Watch {
  readonly type: "watch";
  readonly client: number;
  /** The client's number for the watch. */
  readonly id: number;
  /** The collection; `undefined` for raw keys. */
  readonly collection: string | undefined;
  /** The index of the collection, if the range is one of that. */
  readonly index?: string | undefined;
  readonly range: unknown;
  /** How messages name the call: "live()". Clients of earlier builds do not say it. */
  readonly call?: string | undefined;
  /** Set if values are wanted too; it has the kind of the client's schema as text, if there is one. */
  readonly rows?: readonly [schema?: string | undefined] | undefined;
  /** The client's build. An owner of another build sends it no values. */
  readonly build: string;
  /** The client's epoch: that of the last full answer from this owner, 0 if there was none. */
  readonly epoch: number;
  /** The number of the last `WatchUpdate` of that epoch that the client has received. */
  readonly number: number;
}

/** Ends a watch. */
export interface Unwatch {
  readonly type: "unwatch";
  readonly client: number;
  readonly id: number;
}

/** Cancels a request. Long work ends; everything else stays as it is. */
export interface CancelRequest {
  readonly type: "cancel";
  readonly client: number;
  readonly id: number;
}

/** The messages from clients to owners. */
export type ToOwner = RequestBatch | OwnerQuery | Watch | Unwatch | CancelRequest;

/** The owner of the file announces itself: when it becomes the owner, and when it is asked. */
export interface OwnerAnnouncement {
  readonly type: "owner";
  readonly owner: string;
  /** The client whose `OwnerQuery` it answers; 0 if there was none. */
  readonly client: number;
  readonly round: number;
  /** The time at which the owner sent this, in milliseconds by its own monotonic clock. */
  readonly at: number;
}

/** This owner is no longer the owner; the next one announces itself. */
export interface OwnerResignation {
  readonly type: "resigned";
  readonly owner: string;
  /** Whether its page has ended it because it hung. */
  readonly hung?: boolean;
  /** Its last report to its page. */
  readonly retriedHung?: RetriedHungRequests | undefined;
}

/** Requests that an owner is about to do, and that an earlier owner had when it hung. */
export interface RetriedHungRequests {
  readonly type: "retried-hung";
  readonly client: number;
  readonly ids: readonly number[];
}

/** The answers to a `RequestBatch` that exist so far. */
export interface ResponseBatch {
  readonly type: "responses";
  readonly owner: string;
  readonly answers: readonly Answer[];
  /**
   * The `term` of the `RequestBatch`. The answers count only as long as the client knows of no later owner,
   * which may apply requests that are refused here.
   */
  readonly term?: number;
  /** The time at which the owner sent this, as in `OwnerAnnouncement`. */
  readonly at: number;
}

/** Writes before the requested ones are missing: the client has to send every unanswered request again. */
export interface ResendRequest {
  readonly type: "resend";
  readonly owner: string;
}

/** Changed rows, as of one moment. */
export interface ChangedRows {
  /** How the client decodes the keys, or all keys decoded. */
  readonly keys: "text" | "bytes" | readonly unknown[];
  readonly values: RowsAnswer;
}

/** The changes in a watched range since the `WatchUpdate` with the number before this one. */
export interface WatchUpdate {
  readonly type: "changes";
  readonly owner: string;
  readonly id: number;
  /**
   * Every full answer begins an epoch. Epochs of one owner only grow. A client accepts a full answer if its
   * epoch is above the client's, and any other message only if it continues the client's epoch. A client that
   * receives a later epoch has missed a message and sends its watch again.
   */
  readonly epoch: number;
  /**
   * The number of this message in its epoch, from 1. 0: the owner has ended the watch because it was not
   * renewed. Below 0: the contents cannot be read at present.
   */
  readonly number: number;
  /** Whether this is a full answer: `changes` lists every key in the range, whatever was sent before. */
  readonly isAll: boolean;
  /**
   * In a full answer of an owner that has created the database: a number that no other opening has. Versions of the
   * database before it may come again, with other values.
   */
  readonly created?: number | undefined;
  /**
   * Keys and their versions; 0 for removed keys. With `rows`, each key is a string with one character for each of its
   * bytes, so that the order of the strings is that of the keys.
   */
  readonly changes: readonly (readonly [key: unknown, version: number])[];
  /** The rows of the keys that were not removed, in the order of `changes`, if the watch is for rows. */
  readonly rows?: ChangedRows | undefined;
  /** Why the range cannot be watched. */
  readonly error?: WireError;
}

/** The progress of long work of the owner; `undefined` when it is done. */
export interface Progress {
  readonly type: "progress";
  readonly owner: string;
  readonly progress: ClientProgress | undefined;
}

/** The messages from owners to clients. */
export type ToClient =
  | OwnerAnnouncement
  | OwnerResignation
  | ResponseBatch
  | ResendRequest
  | WatchUpdate
  | Progress;

/**
 * A text that identifies a key, equal for equal keys of any realm. A tuple's parts are no deeper lists; a
 * deeper one is not a key, and the owner refuses it.
 */
export function keyName(key: unknown, depth = 0): string {
  if (typeof key !== "object") return typeof key + String(key);
  if (depth > 2) return "none";
  if (Array.isArray(key)) return JSON.stringify(key.map((part) => keyName(part, depth + 1)));
  // A time may be given as a date or as its number.
  return isBytes(key) ? String(cloneArgs(key)) : keyName(+(key as Date));
}
