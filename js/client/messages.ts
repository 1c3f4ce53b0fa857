/**
 * What clients and owners say to each other. A client is one `connect` of one page or worker; the owner
 * is the worker that has the file. Everything here can be cloned from one realm to another.
 */

import type { ClientProgress } from "./progress.js";

/** The version of this protocol. */
export const PROTOCOL = 1;

/** How another build of the application stands to one's own. */
export type Standing = "same" | "newer" | "older" | "other";

/**
 * What tells one build from another: the application's version, that of the protocol, and a digest of
 * its schemas.
 */
export function buildName(version: number, digest: string): string {
  return `${version}.${PROTOCOL}.${digest}`;
}

/** Builds that have the same numbers and other schemas are neither newer nor older. */
export function standingOf(mine: string, theirs: string): Standing {
  if (mine === theirs) return "same";
  const [own, others] = [mine.split("."), theirs.split(".")];
  for (const i of [0, 1]) {
    const difference = Number(others[i]) - Number(own[i]);
    if (difference !== 0) return difference > 0 ? "newer" : "older";
  }
  return "other";
}

/** What is asked for; its arguments are those that `operations.ts` takes. */
export interface Request {
  /** The client's number for it, by which it is answered. */
  readonly id: number;
  /**
   * 0 for what only reads. The writes of a client are numbered from 1 without gaps, and are applied in
   * that order, each at most once.
   */
  readonly write: number;
  /** The client's writes up to this number were asked for before it, and have to come first. */
  readonly after: number;
  /** The time (`Date.now()`) after which nobody applies it. */
  readonly deadline: number;
  /** What to do; empty: nothing, for the client has given it up. */
  readonly call: string;
  readonly args: readonly unknown[];
}

/** What was called for it. */
export function calledFor({ call, args }: Pick<Request, "call" | "args">): string {
  if (call === "in") return String(args[1]);
  return call === "commitIf" ? "transaction" : call;
}

/** An error on its way to another realm. */
export interface WireError {
  readonly name: string;
  readonly message: string;
  readonly code?: string | undefined;
  readonly stack?: string | undefined;
  /** What its class has beside these. */
  readonly more?: Readonly<Record<string, unknown>> | undefined;
  readonly cause?: unknown;
}

/** What came of a request. */
export type Outcome =
  | { readonly value: unknown }
  | { readonly error: WireError }
  /** It was applied, and its answer was not kept: it came too late or was too large. */
  | { readonly forgotten: true };

/** An outcome and the request that it belongs to. */
export interface Answer {
  readonly id: number;
  readonly outcome: Outcome;
}

/** Requests that were made in one task: they are one message and one commit. */
export interface Ask {
  readonly type: "ask";
  /** The client's build, as `buildName` has it. Owners do nothing for another than their own. */
  readonly build: string;
  /** How many owners the client has heard of. */
  readonly turn: number;
  /** Chosen at random, once for each client. */
  readonly client: number;
  /** All writes up to here are over for the client: it wants no answer to them any more. */
  readonly acknowledged: number;
  readonly requests: readonly Request[];
}

/** Asks for the owner, who says `Here`. */
export interface Who {
  readonly type: "who";
  /** Given back by the owner. Whatever was posted to it before has then been seen, or is lost. */
  readonly round: number;
  readonly client: number;
}

/** Looks at a range from now on. It is repeated now and then, and told to every new owner. */
export interface Watch {
  readonly type: "watch";
  readonly client: number;
  /** The client's number for it. */
  readonly id: number;
  /** The collection, or none: raw keys. */
  readonly place: string | undefined;
  readonly range: unknown;
  /** The number of the last `Seen` that it has had of this owner; 0 or less for none. */
  readonly number: number;
}

/** Looks there no more. */
export interface Unwatch {
  readonly type: "unwatch";
  readonly client: number;
  readonly id: number;
}

/** A request is not wanted any more. What takes long ends; all else is as it was. */
export interface Stop {
  readonly type: "stop";
  readonly client: number;
  readonly id: number;
}

/** What clients send to owners. */
export type ToOwner = Ask | Who | Watch | Unwatch | Stop;

/** The owner of the file speaks: when it has become that, and when it is asked for. */
export interface Here {
  readonly type: "here";
  readonly owner: string;
  /** Whose question it answers, and which; 0 when it was not asked. */
  readonly client: number;
  readonly round: number;
}

/** It is the owner no more; another one will tell. */
export interface Gone {
  readonly type: "gone";
  readonly owner: string;
}

/** The answers to an `Ask`, all that there are at that time. */
export interface Told {
  readonly type: "told";
  readonly owner: string;
  readonly answers: readonly Answer[];
  /**
   * The `turn` of what it answers: it counts only while the client has heard of no other owner since, who
   * may do what is refused here.
   */
  readonly passing?: number;
}

/** Writes are missing that came before those asked for: all that has no answer is to be sent again. */
export interface Again {
  readonly type: "again";
  readonly owner: string;
}

/** What has changed in a watched range, since the `Seen` with the number before it. */
export interface Seen {
  readonly type: "seen";
  readonly owner: string;
  readonly id: number;
  /** Of those that this owner has sent for it. Below 0: what there is cannot be read at present. */
  readonly number: number;
  /** What is told is all that is there, whatever was told before. */
  readonly isAll: boolean;
  /** Keys and their versions; 0 for those that are gone. */
  readonly changes: readonly (readonly [key: unknown, version: number])[];
  /** Why it cannot be watched. */
  readonly error?: WireError;
}

/** What the owner is at that takes long; nothing when it is done. */
export interface Progress {
  readonly type: "progress";
  readonly owner: string;
  readonly progress: ClientProgress | undefined;
}

/** What owners send to clients. */
export type ToClient = Here | Gone | Told | Again | Seen | Progress;

/** The same text for the same key, whichever object it is, and of whatever realm. */
export function keyName(key: unknown): string {
  if (typeof key !== "object") return `${typeof key} ${key}`;
  if (Array.isArray(key)) return JSON.stringify(key.map(keyName));
  // A time may be given as a date or as its number.
  return ArrayBuffer.isView(key) ? (key as Uint8Array).join() : keyName(+(key as Date));
}
