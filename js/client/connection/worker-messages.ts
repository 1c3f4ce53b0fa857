/** What a page and the worker that it started say to each other, beside the protocol. */

import type {
  ClientProgress,
  RetriedHungRequests,
  ToClient,
  ToOwner,
  WireError,
} from "../protocol/messages.js";

/** The page has a client for this database: the worker is to stand for its ownership. */
export interface Init {
  readonly type: "init";
  readonly name: string;
  /** The application's version, as the page knows it. */
  readonly version: number | undefined;
}

/** The page goes or sleeps: the worker is to hand over, and says `Released`. */
export interface Release {
  readonly type: "release";
}

/** A client elsewhere has sent a port, which is transferred with this. */
export interface AttachPort {
  readonly type: "attach-port";
}

export type ToWorker = Init | Release | AttachPort | ToOwner;

/** The worker runs. */
export interface Ready {
  readonly type: "ready";
  /** The channel on which other realms' owners are; none where the worker alone can be owner. */
  readonly channel: string | undefined;
  /** Its build, which is the page's too. */
  readonly build: string;
  /** The names of the collections whose values are JSON. */
  readonly json: readonly string[];
  /** Its own program, as far as other tabs can start one from the same address. */
  readonly program: Program | undefined;
}

/** Where a worker's program comes from. */
export interface Program {
  readonly url: string;
  readonly type: "classic" | "module";
}

/** The worker holds this Web Lock for as long as it lives: whoever waits for it hears that it has ended. */
export interface LifetimeLock {
  readonly type: "lifetime-lock";
  readonly lock: string;
}

/** Another build is to have the database, now and in future: the page has to be loaded anew. */
export interface Outdated {
  readonly type: "outdated";
  readonly error: WireError;
}

export interface State {
  readonly type: "state";
  /** `"waiting"` for the present owner, `"busy"`: for a file that nobody was to have any more. */
  readonly state: "waiting" | "opening" | "busy";
  /** How far opening has come, or bringing to another version what is there. */
  readonly progress?: ClientProgress;
}

/** The worker could not become owner, and stands for it no more. */
export interface Failed {
  readonly type: "failed";
  readonly error: WireError;
}

/** The worker is owner, and clients elsewhere ask for it. */
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
  | ToClient;

/** The lock of a database, and the channel of all that have to do with it. */
export function channelName(identity: unknown): string {
  return `varve:${String(identity)}`;
}
