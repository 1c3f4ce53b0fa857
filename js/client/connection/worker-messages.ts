/** The messages between a page and the worker that it started, beside the protocol. */

import type { Storing } from "../protocol/json-values.js";
import type {
  ClientProgress,
  OwnerAnnouncement,
  RetriedHungRequests,
  ToClient,
  ToOwner,
  WireError,
} from "../protocol/messages.js";

/** The page has a client for this database: the worker is to wait for its ownership. */
export interface Init {
  readonly type: "init";
  readonly name: string;
  /** The application's version, according to the page. */
  readonly version: number | undefined;
  /** The version of the page's protocol. */
  readonly protocol: number;
}

/** The page ends or sleeps: the worker is to hand over, and replies with `Released`. */
export interface Release {
  readonly type: "release";
}

/** A client in another realm has sent a port, which is transferred with this message. */
export interface AttachPort {
  readonly type: "attach-port";
}

export type ToWorker = Init | Release | AttachPort | ToOwner;

/** The worker runs. */
export interface Ready {
  readonly type: "ready";
  /** The channel of owners in other realms; `undefined` where no other worker can be the owner. */
  readonly channel: string | undefined;
  /** The worker's build, which is also the page's. */
  readonly build: string;
  /** How collections store their values, by name: those to which a client does not send a plain copy. */
  readonly storing: readonly (readonly [name: string, storing: Storing])[];
  /** The worker's program, if other tabs can start it from the same URL. */
  readonly program: Program | undefined;
}

/** The source of a worker's program. */
export interface Program {
  readonly url: string;
  readonly type: "classic" | "module";
}

/**
 * The worker holds this Web Lock until it ends: when the page gets the lock, the worker has ended.
 */
export interface LifetimeLock {
  readonly type: "lifetime-lock";
  readonly lock: string;
}

/** Another build owns the database from now on: the page has to be reloaded. */
export interface Outdated {
  readonly type: "outdated";
  readonly error: WireError;
}

export interface State {
  readonly type: "state";
  /** `"waiting"` for the present owner; `"busy"`: the lock is free, but the file is still in use. */
  readonly state: "waiting" | "opening" | "busy";
  /** The progress of opening or migrating the database. */
  readonly progress?: ClientProgress;
}

/** The worker could not become the owner, and no longer waits for ownership. */
export interface Failed {
  readonly type: "failed";
  readonly error: WireError;
}

/** The worker is the owner. */
export interface OwnAnnouncement extends OwnerAnnouncement {
  /** When it was sent, by `originTime`. */
  readonly sentAt: number;
}

/** The worker is the owner, and clients in other realms look for it. */
export interface PortsWanted {
  readonly type: "ports-wanted";
}

export interface Released {
  readonly type: "released";
}

export type FromWorker =
  | Ready
  | LifetimeLock
  | Outdated
  | State
  | Failed
  | PortsWanted
  | Released
  | RetriedHungRequests
  | OwnAnnouncement
  | ToClient;

/** The name of a database's lock, and of the channel of its owners and clients. */
export function channelName(identity: unknown): string {
  return `varve:${String(identity)}`;
}
