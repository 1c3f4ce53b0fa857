/** A client's connection: its worker, the ways to owners elsewhere, time, and what the page goes through. */

import type { OpenProgress } from "../options.js";
import { broken, closed, errorOf, noWorker } from "./link-errors.js";
import type { FromHost, ToHost } from "./local.js";
import type { ToClient, ToOwner, Who } from "./messages.js";
import { followPage, hesitate } from "./page.js";
import { type Ending, Sender } from "./sender.js";
import { type Adder, WatchList } from "./watch.js";
import { Ways } from "./ways.js";
import { fromWire } from "./wire-errors.js";

/** What speaks like a worker: a `Worker`, or a `MessagePort` on which a database is served. */
export interface WorkerLike {
  // Not Transferable[]: the types of Cloudflare Workers have no such name.
  postMessage(message: unknown, transfer?: object[]): void;
  addEventListener(type: string, listener: (event: Event) => void): void;
  start?(): void;
  terminate?(): void;
  close?(): void;
}

/** How it stands with the database, as far as a client knows. */
export interface ClientStatus {
  /**
   * - `"idle"`: nothing was asked for yet, or the last attempt failed
   * - `"starting"`: the worker is being started
   * - `"waiting"`: for an owner
   * - `"opening"`: this client's worker opens the file
   * - `"open"`: an owner answers
   * - `"suspended"`: the page sleeps, and its worker has let go
   * - `"outdated"`: a newer build of the application has the database; load the page anew
   * - `"closed"`: by `close()`
   */
  readonly state:
    | "idle"
    | "starting"
    | "waiting"
    | "opening"
    | "open"
    | "suspended"
    | "outdated"
    | "closed";
  /** Who has the file: this client's own worker, or that of another tab. */
  readonly owner: "here" | "elsewhere" | undefined;
  /** Why it waits, in a sentence. */
  readonly reason: string | undefined;
  /** While this client's worker opens a file that takes some time: how far it has come. */
  readonly progress?: OpenProgress;
}

/** A request's own options. */
export interface CallOptions {
  /** Ends the call when it is aborted: it rejects with its reason. A write may then have been done. */
  signal?: AbortSignal | undefined;
  /** Milliseconds until nobody does it any more, and it rejects. That of `connect` when left out. */
  timeout?: number | undefined;
}

/** What a link needs to know. */
export interface LinkOptions {
  readonly worker: (() => WorkerLike) | undefined;
  readonly timeout: number;
  readonly version: number | undefined;
  /** Something has happened that the program may want to hear of. */
  readonly tell: (event: "status" | "outdated") => void;
}

/** How often it is looked what is late, while anything is waited for. */
const TICK_MS = 100;

/** Requests made in so many microtasks, one after the other, still are one message. */
const HOPS = 3;

/** Its reactions cost a third of what `queueMicrotask` does. */
const NOW = Promise.resolve();

/** It has so long to do what it was asked for when its page goes. */
const LAST_MS = 100;

/** A worker has so long to hand over when its client closes. */
const CLOSE_MS = 5_000;

/** A worker of one's own that says nothing for so long, when it is asked, is replaced. */
const DEAF_MS = 6_000;

const WAITS = {
  waiting: "Another tab has the database, and has not answered yet.",
  opening: undefined,
  busy: "The file is still held by a worker or tab that is about to end, or that was put to sleep.",
} as const;

/** A client's connection. */
export class Link {
  status: ClientStatus = { state: "idle", owner: undefined, reason: undefined };
  private readonly ready: Promise<void>;
  private readonly name: string;
  private readonly options: LinkOptions;
  private readonly id: number;
  private readonly sender: Sender;
  private readonly watches: WatchList;
  private worker: WorkerLike | undefined;
  /** Whether it has said that it runs. */
  private isUp = false;
  /** The owner that this client's own worker is, when it is that. */
  private local: string | undefined;
  private ways: Ways | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private hops = 0;
  private isReady: (failure?: unknown) => void = () => {};
  private released: (() => void) | undefined;
  private closing: Promise<void> | undefined;
  /** Why nothing can be asked for any more: it was closed, or is outdated. */
  private refusal: unknown;
  private readonly unhook: () => void;
  private asleep = false;
  /** Since when the worker was asked and has said nothing. */
  private deafSince: number | undefined;

  constructor(name: string, options: LinkOptions) {
    this.name = name;
    this.options = options;
    this.id = randomNumber();
    this.sender = new Sender(this.id, {
      ask: (owner, message) => this.post(owner, message),
      who: (message) => this.ask(message),
    });
    this.watches = new WatchList(this.id, (message) => {
      const { owner } = this.sender;
      if (owner !== undefined && !this.asleep) this.post(owner, message);
    });
    this.ready = new Promise((resolve, reject) => {
      this.isReady = (failure) => (failure === undefined ? resolve() : reject(failure));
    });
    // Whoever asks for it is told; nobody has to.
    this.ready.catch(() => {});
    this.unhook = followPage(this);
  }

  // ---------------------------------------------------------------- requests

  request(
    call: string,
    args: readonly unknown[],
    writes: boolean,
    { signal, timeout = this.options.timeout }: CallOptions = {},
  ): Promise<unknown> {
    if (this.refusal !== undefined) return Promise.reject(this.refusal);
    if (signal?.aborted === true) return Promise.reject(signal.reason);
    return new Promise((resolve, reject) => {
      const now = Date.now();
      const settle = (ending: Ending) => {
        signal?.removeEventListener("abort", abort);
        if ("value" in ending) resolve(ending.value);
        else reject(errorOf(this.name, call, writes, ending, this.status.reason));
      };
      const deadline = Math.ceil(now + timeout);
      const id = this.sender.request({ call, args, writes, deadline, settle }, now);
      const abort = () => {
        this.sender.giveUp(id);
        reject(signal?.reason);
      };
      signal?.addEventListener("abort", abort, { once: true });
      this.soon();
    });
  }

  /** Sends at the end of the task what is asked for in it, in one message. */
  private soon(): void {
    this.need();
    if (this.hops > 0) return;
    this.hops = HOPS;
    const hop = () => {
      this.hops -= 1;
      if (this.hops > 0) NOW.then(hop);
      else this.sender.flush();
    };
    NOW.then(hop);
    this.arm();
  }

  private arm(): void {
    if (this.timer !== undefined || this.sender.waiting === 0) return;
    this.timer = setTimeout(() => {
      this.timer = undefined;
      this.sender.tick(Date.now());
      this.arm();
    }, TICK_MS);
  }

  // ---------------------------------------------------------------- the worker

  /** Has watches of a range begun, as soon as there is an owner. */
  watch(place: string | undefined, range: unknown): Adder {
    return (heard, over) => {
      this.need();
      return this.watches.add(place, range, heard, over);
    };
  }

  /** Has a worker, if there is none. */
  need(): void {
    if (this.worker === undefined && this.sender.owner === undefined) this.start();
  }

  /** That it is ready, for which it may have to begin. */
  awaited(): Promise<void> {
    if (this.status.state === "idle" && this.status.reason === undefined) this.start();
    return this.ready;
  }

  /** Has a worker stand for ownership. */
  start(): void {
    if (this.refusal !== undefined) return;
    this.show("starting");
    try {
      const worker = this.worker ?? this.begin();
      this.worker = worker;
      this.toHost({ type: "hello", name: this.name, version: this.options.version });
    } catch (error) {
      this.failed(error);
    }
  }

  private begin(): WorkerLike {
    const { worker: make } = this.options;
    if (make === undefined) throw noWorker(this.name);
    let worker: WorkerLike;
    this.isUp = false;
    try {
      worker = make();
    } catch (cause) {
      throw noWorker(this.name, cause);
    }
    worker.addEventListener("message", (event) => {
      if (this.worker === worker) this.hear((event as MessageEvent).data as FromHost);
    });
    worker.addEventListener("error", (event) => {
      if (this.worker !== worker) return;
      this.failed(broken(this.name, event as ErrorEvent));
    });
    worker.start?.();
    return worker;
  }

  private toHost(message: ToHost): void {
    this.worker?.postMessage(message);
  }

  private hear(message: FromHost): void {
    this.deafSince = undefined;
    switch (message.type) {
      case "up":
        this.isUp = true;
        this.sender.build = message.build;
        this.join(message.channel);
        break;
      case "state":
        if (this.sender.owner === undefined && !this.asleep) {
          const { state, progress } = message;
          this.show(state === "opening" ? "opening" : "waiting", WAITS[state], progress);
        }
        break;
      case "outdated":
        this.outdate(fromWire(message.error));
        break;
      case "failed":
        this.failed(fromWire(message.error));
        break;
      case "visited":
        if (this.local !== undefined) this.ways?.offer(this.local);
        break;
      case "released":
        this.released?.();
        break;
      default:
        if (message.type === "here") this.local = message.owner;
        this.told(message);
    }
  }

  /** Something an owner says, here or elsewhere. */
  private told(message: ToClient): void {
    if (this.asleep) return;
    if (message.type === "seen") {
      this.watches.hear(message);
      return;
    }
    const before = this.sender.owner;
    this.sender.hear(message, Date.now());
    if (message.type === "here" && message.owner !== before) this.watches.renew();
    if (message.type === "here" || this.sender.owner === message.owner) {
      this.show("open");
      this.isReady();
    } else if (message.type === "gone" && this.sender.owner === undefined) {
      if (this.status.state === "open") this.show("waiting", "The owner has handed over.");
    }
  }

  private failed(error: unknown): void {
    this.dismiss();
    // An owner elsewhere answers all the same. When there is none any more, it is tried anew.
    if (this.sender.owner !== undefined) return;
    this.show("idle", String((error as { message?: unknown }).message));
    this.isReady(error);
    this.sender.endAll((one) => (one.sent ? { lapsed: "unknown" } : { thrown: error }));
  }

  /** Writes that were sent are still answered, for they may have been done. All else ends. */
  private outdate(error: Error): void {
    if (this.refusal !== undefined) return;
    this.refusal = error;
    this.show("outdated", error.message);
    this.isReady(error);
    this.watches.stop(error);
    this.sender.endAll((one) => (one.write > 0 ? undefined : { thrown: error }));
    this.options.tell("outdated");
  }

  private dismiss(): void {
    const { worker } = this;
    this.worker = undefined;
    this.local = undefined;
    this.deafSince = undefined;
    if (worker !== undefined) stop(worker);
  }

  // ---------------------------------------------------------------- owners elsewhere

  private join(channel: string | undefined): void {
    if (channel === undefined || this.ways !== undefined || this.asleep) return;
    this.ways = new Ways(channel, this.id, {
      hear: (message) => this.told(message),
      visit: (port) => this.worker?.postMessage({ type: "visit" }, [port]),
    });
    this.sender.ask();
  }

  private leave(): void {
    this.ways?.close();
    this.ways = undefined;
  }

  private post(owner: string, message: ToOwner): void {
    if (owner === this.local) this.toHost(message);
    else this.ways?.post(owner, message);
  }

  private ask(message: Who): void {
    if (this.asleep) return;
    if (this.sender.unanswered > 1 && this.status.state === "open") {
      this.show("waiting", "The owner does not answer: its tab may be asleep, or at work.");
    }
    const now = Date.now();
    this.deafSince ??= now;
    if (now > this.deafSince + DEAF_MS) {
      // It was ended by something that nobody tells, or hangs.
      this.dismiss();
      this.start();
    }
    this.toHost(message);
    this.ways?.who(message);
  }

  // ---------------------------------------------------------------- what the page goes through

  /**
   * The page goes or sleeps: others are to have the file. The worker is ended, for it could be ended or
   * fall asleep with the page before it lets go; but not before it has done what it was asked for.
   */
  sleep(): void {
    if (this.worker === undefined || this.asleep || this.closing !== undefined) return;
    this.asleep = true;
    this.sender.flush();
    if (this.local !== undefined && this.sender.waiting > 0) hesitate(LAST_MS);
    this.dismiss();
    this.leave();
    const { owner } = this.sender;
    if (owner !== undefined) this.sender.hear({ type: "gone", owner }, Date.now());
    this.show("suspended", "The page sleeps.");
  }

  wake(): void {
    if (!this.asleep) return;
    this.asleep = false;
    this.start();
  }

  // ---------------------------------------------------------------- the end

  /** Waits for what was asked for, and has the worker hand over. */
  close(): Promise<void> {
    this.refusal = closed(this.name);
    this.closing ??= this.end();
    return this.closing;
  }

  private async end(): Promise<void> {
    this.sender.flush();
    while (this.sender.waiting > 0 && this.worker !== undefined) {
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    this.unhook();
    this.watches.stop();
    clearTimeout(this.timer);
    const { worker } = this;
    if (worker !== undefined && this.isUp) {
      await new Promise<void>((resolve) => {
        this.released = resolve;
        this.timer = setTimeout(resolve, CLOSE_MS);
        this.toHost({ type: "release" });
      });
      clearTimeout(this.timer);
    }
    this.dismiss();
    this.leave();
    this.show("closed");
    this.isReady(this.refusal);
  }

  private show(state: ClientStatus["state"], reason?: string, progress?: OpenProgress): void {
    // That is its last word before it closes.
    if (this.status.state === "outdated" && state !== "closed") return;
    const { owner: known } = this.sender;
    const owner = known === undefined ? undefined : known === this.local ? "here" : "elsewhere";
    const { status } = this;
    const isSame = status.state === state && status.owner === owner && status.reason === reason;
    if (isSame && progress === undefined) return;
    this.status = { state, owner, reason, ...(progress && { progress }) };
    this.options.tell("status");
  }
}

function stop(worker: WorkerLike): void {
  worker.terminate?.();
  if (worker.terminate !== undefined) return;
  worker.postMessage({ type: "release" });
  worker.close?.();
}

/** 53 random bits, and never 0. */
function randomNumber(): number {
  const [high = 0, low = 0] = crypto.getRandomValues(new Uint32Array(2));
  return (high >>> 11) * 0x1_0000_0000 + low || 1;
}
