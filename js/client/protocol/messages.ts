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

/** What the worker that has the database is doing, and its progress. */
export type ClientProgress =
  | OpenProgress
  | ({ readonly doing: "migrating" } & MigrateProgress)
  | ({ readonly doing: "compacting" } & CompactProgress)
  | ({ readonly doing: "verifying" } & VerifyProgress)
  | ({ readonly doing: "exporting" } & ExportProgress);

/** The version of this protocol. */
export const PROTOCOL = 2;

/** How another build of the application compares with one's own. */
export type BuildOrder = "same" | "newer" | "older" | "other";

/** Identifies a build: the application's version, the version of the protocol, and a digest of its schemas. */
export function buildName(version: number, digest: string): string {
  return `${version}.${PROTOCOL}.${digest}`;
}

/**
 * How the build `theirs` compares with `mine`. Builds with the same versions and other schemas are `"other"`:
 * neither newer nor older.
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

/** A request. Its arguments are those that `worker/handlers.ts` takes. */
export interface Request {
  /** The client's number for it, which its answer carries. */
  readonly id: number;
  /**
   * 0 for a request that only reads. The writes of a client are numbered from 1 without gaps. They are
   * applied in that order, each at most once.
   */
  readonly write: number;
  /** The number of the client's last write that was requested before it. That one has to come first. */
  readonly after: number;
  /** The time after which nobody applies it, in milliseconds by the clock of the owner that it is sent to. */
  readonly deadline: number;
  /** The name of the call; empty if the client has given the request up, so that there is nothing to do. */
  readonly call: string;
  /** The arguments of the call. */
  readonly args: readonly unknown[];
  /**
   * 1 for a procedure that an owner had when it hung: the next one tells its page before it tries it. 2 if that
   * one hung in it: it is not done any more.
   */
  readonly hangCount?: number;
}

/** What was called for it. */
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
  /** It was applied, and its answer was not kept: it came too late or was too large. */
  | { readonly forgotten: true };

/** The outcome of a request, with the request's number. */
export interface Answer {
  readonly id: number;
  readonly outcome: Outcome;
}

/** Requests that were made in one task: one message and one commit. */
export interface RequestBatch {
  readonly type: "requests";
  /** The client's build, as by `buildName`. An owner does nothing for another build than its own. */
  readonly build: string;
  /** How many owners the client has heard of. */
  readonly term: number;
  /** The client's number, chosen at random once for each client. */
  readonly client: number;
  /** The client needs no answer any more to its writes up to this number. */
  readonly acknowledged: number;
  readonly requests: readonly Request[];
}

/** Asks who the owner is. The owner answers with `Here`. */
export interface OwnerQuery {
  readonly type: "find-owner";
  /** Sent back by the owner. Everything that was posted to it before has then been seen, or is lost. */
  readonly round: number;
  readonly client: number;
}

/** Watches a range from now on. It is repeated now and then, and sent to every new owner. */
export interface Watch {
  readonly type: "watch";
  readonly client: number;
  /** The client's number for the watch. */
  readonly id: number;
  /** The collection; `undefined` for raw keys. */
  readonly collection: string | undefined;
  readonly range: unknown;
  /** The epoch that the client is in: that of the last full answer from this owner, 0 if it has none. */
  readonly epoch: number;
  /** The number of the last `Seen` of that epoch that the client has had. */
  readonly number: number;
}

/** Ends a watch. */
export interface Unwatch {
  readonly type: "unwatch";
  readonly client: number;
  readonly id: number;
}

/** A request is not wanted any more. Long work ends; everything else stays as it is. */
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
  /** Whose `Who` it answers; 0 if it was not asked. */
  readonly client: number;
  readonly round: number;
  /** When the owner sent this, in milliseconds by its own clock, which never steps. */
  readonly at: number;
}

/** This owner is no longer the owner; the next one announces itself. */
export interface OwnerResignation {
  readonly type: "resigned";
  readonly owner: string;
  /** Its page has ended it because it hung. */
  readonly hung?: boolean;
  /** What it had told its page about last. */
  readonly retriedHung?: RetriedHungRequests | undefined;
}

/** Requests that an owner is about to do and that an earlier one had when it hung. */
export interface RetriedHungRequests {
  readonly type: "retried-hung";
  readonly client: number;
  readonly ids: readonly number[];
}

/** The answers to an `Ask`, as far as there are any at that time. */
export interface ResponseBatch {
  readonly type: "responses";
  readonly owner: string;
  readonly answers: readonly Answer[];
  /**
   * The `turn` of the `Ask`. The answers count only as long as the client has heard of no other owner since,
   * which may do what is refused here.
   */
  readonly term?: number;
  /** When the owner sent this, as in `Here`. */
  readonly at: number;
}

/** Writes before the requested ones are missing: the client has to send everything again that has no answer. */
export interface ResendRequest {
  readonly type: "resend";
  readonly owner: string;
}

/** What has changed in a watched range since the `Seen` with the number before it. */
export interface WatchUpdate {
  readonly type: "changes";
  readonly owner: string;
  readonly id: number;
  /**
   * Every full answer begins an epoch. Those of one owner only grow, so a full answer is taken if its epoch is
   * above the client's, and any other message only if it continues the client's epoch. A client that is told
   * of a later epoch has missed something and sends its watch again.
   */
  readonly epoch: number;
  /**
   * The number of this message among those of its epoch, from 1. 0: the owner has ended the watch, as it was
   * not renewed. Below 0: the contents cannot be read at present.
   */
  readonly number: number;
  /** Whether this is a full answer: `changes` is everything that is there, whatever was told before. */
  readonly isAll: boolean;
  /** Keys and their versions; 0 for keys that are gone. */
  readonly changes: readonly (readonly [key: unknown, version: number])[];
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
 * The same text for the same key, whichever object it is, and of whatever realm. A tuple with its place has no
 * deeper lists in it: what has some is no key, which is for the owner to say.
 */
export function keyName(key: unknown, depth = 0): string {
  if (typeof key !== "object") return typeof key + String(key);
  if (depth > 2) return "none";
  if (Array.isArray(key)) return JSON.stringify(key.map((part) => keyName(part, depth + 1)));
  // A time may be given as a date or as its number.
  return isBytes(key) ? String(cloneArgs(key)) : keyName(+(key as Date));
}
