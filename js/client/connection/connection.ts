/** A connection of this realm: its worker, the ways to owners elsewhere, time, and what the page goes through. */

import { clearTimeout, monotonicNow, setTimeout } from "../../util/clock.js";
import { AS, admitted, LONGEST_TIMEOUT } from "../protocol/call-options.js";
import { type Adder, type Heard, type Over, WatchList } from "../protocol/client-subscriptions.js";
import { fromWire } from "../protocol/errors.js";
import { carried, ownClone } from "../protocol/json-values.js";
import type { ClientProgress, Doing, ToClient, ToOwner, Who } from "../protocol/messages.js";
import { type Ending, Sender } from "../protocol/request-queue.js";
import { broken, closed, errorOf, noWorker, SILENT, watchPolicy } from "./errors.js";
import { followPage, hesitate } from "./page-lifecycle.js";
import { type Ways, waysOf } from "./transport.js";
import type { FromHost, ToHost, Up } from "./worker-messages.js";

/** Anything with the message interface of a worker: a `Worker`, or a `MessagePort` on which a database is served. */
export interface WorkerLike {
  // Not Transferable[]: the types of Cloudflare Workers have no such name.
  postMessage(message: unknown, transfer?: object[]): void;
  addEventListener(type: string, listener: (event: Event) => void): void;
  start?(): void;
  terminate?(): void;
  close?(): void;
}

/** The state of the connection to the database, as far as a client knows. */
export interface ClientStatus {
  /**
   * - `"idle"`: nothing was requested yet, or the last attempt failed
   * - `"starting"`: the worker is being started
   * - `"waiting"`: it waits for an owner
   * - `"opening"`: this client's worker opens the file
   * - `"open"`: an owner answers
   * - `"suspended"`: the page sleeps, and its worker has released the database
   * - `"outdated"`: a newer build of the application has the database; reload the page
   * - `"closed"`: `close()` was called
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
  /** Why the client waits, in a sentence. */
  readonly reason: string | undefined;
  /**
   * The progress of long work that the worker with the database does, whichever tab it belongs to. The
   * progress of opening and migrating is told only to the clients of that tab.
   */
  readonly progress?: ClientProgress;
}

/** The options of every call of a client. */
export interface CallOptions {
  /**
   * Ends the call when it is aborted, whatever it waits for: it rejects with the signal's reason. A write may
   * have been done all the same.
   */
  signal?: AbortSignal | undefined;
  /**
   * Milliseconds after which nobody does the call any more and it rejects: more than 0, at most 3,600,000. By
   * default the `timeout` of `connect`.
   */
  timeout?: number | undefined;
  /** @internal */
  [AS]?: string;
}

/** Gives what a call is about, as it is now: the program may change its bytes and objects later. */
export type Args = () => readonly unknown[];

/** How calls travel. A place is a collection; without one it is the raw keys that are meant. */
export interface Caller {
  /** Those that do again what has met a conflict, one behind the other. */
  readonly line: Set<() => void>;
  request(
    call: string,
    args: Args,
    writes: boolean,
    options?: CallOptions,
    place?: string,
    index?: string,
  ): Promise<unknown>;
  watch(place: string | undefined, range: unknown): Adder;
  /** Whether the values of a collection are JSON; `undefined` as long as no worker has said it. */
  isJson(place: string): boolean | undefined;
}

/** What a link needs to know. */
export interface LinkOptions {
  readonly worker: (() => WorkerLike) | undefined;
  readonly version: number | undefined;
}

/** What a client has of a connection, which may be that of others in this realm too. */
export class Handle implements Caller {
  readonly line: Set<() => void> = new Set();
  readonly timeout: number;
  /** Something has happened that the program may want to hear of. */
  readonly tell: (event: "status" | "outdated") => void;
  /** How many of its requests have no answer. */
  waiting = 0;
  /** Why nothing can be asked for any more. */
  refusal: unknown;
  /** Its last status. */
  closed: ClientStatus | undefined;
  private readonly link: Link;
  private closing: Promise<void> | undefined;

  constructor(link: Link, timeout: number, tell: Handle["tell"]) {
    this.link = link;
    this.timeout = timeout;
    this.tell = tell;
    link.handles.add(this);
  }

  get status(): ClientStatus {
    return this.closed ?? this.link.status;
  }

  get ready(): Promise<void> {
    return this.link.awaited();
  }

  request(...call: Parameters<Caller["request"]>) {
    return this.link.request(this, ...call);
  }

  watch(place: string | undefined, range: unknown): Adder {
    return (heard, over) => this.link.watch(this, place, range, heard, over);
  }

  isJson(place: string): boolean | undefined {
    return this.link.json?.has(place);
  }

  close(): Promise<void> {
    this.closing ??= this.link.close(this);
    return this.closing;
  }
}

/** Calls that take as long as the file is large. */
const LONG = /^(compact|verify|export)$/;

/** How often it is looked what is late, while anything is waited for. */
const TICK_MS = 100;

/** Its reactions cost a third of what `queueMicrotask` does, and in Firefox 6 µs less than `await`. */
const NOW = Promise.resolve();

/** It has so long to do what it was asked for when its page goes. */
const LAST_MS = 100;

/** A worker has so long to hand over when its client closes. */
const CLOSE_MS = 5_000;

/** A worker of one's own that says nothing for so long, while it is asked again and again, is replaced. */
const DEAF_MS = 6_000;

/** Between two questions at most so much counts: a page that stood still has heard nothing meanwhile. */
const DEAF_STEP_MS = 1_000;

/** A worker that has lived for so long and then ended is replaced at once. */
const LIFE_MS = 1_000;

const WAITS: Readonly<Record<string, string>> = {
  waiting: "Another tab has the database.",
  busy: "A closing or sleeping tab still holds the file.",
};

/** Those of this realm that others may join, by the names of their databases. */
export const links: Map<string, Link> = new Map();

/**
 * What somebody in this realm speaks with, or has ended: two that speak with one worker would hear each other's
 * answers, and one that has ended says nothing.
 */
const taken = new WeakSet<WorkerLike>();

/** A connection. */
export class Link {
  readonly handles: Set<Handle> = new Set();
  readonly options: LinkOptions;
  status: ClientStatus = { state: "idle", owner: undefined, reason: undefined };
  private readonly ready: Promise<void>;
  private readonly name: string;
  private readonly id: number;
  private readonly sender: Sender;
  private readonly watches: WatchList;
  private worker: WorkerLike | undefined;
  /** The names of the collections whose values are JSON, when the worker has said it. */
  json: ReadonlySet<string> | undefined;
  /** Whether it has said that it runs. */
  private isUp = false;
  /** The owner that this client's own worker is, when it is that. */
  private local: string | undefined;
  private ways: Ways | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isSoon = false;
  private isReady!: (failure?: unknown) => void;
  private released: (() => void) | undefined;
  /** Why nothing can be asked for any more: it is outdated, or over. */
  private refusal: unknown;
  private readonly unhook: () => void;
  private asleep = false;
  /** Waits for the worker's lock. A page that was given one while it is kept for going back to is not kept. */
  private guarding: AbortController | undefined;
  /** For how long the worker was asked and has said nothing, up to the last time that it was asked. */
  private deafMs: number | undefined;
  private askedAt = 0;
  /** Whether the worker has the database or is about to, so that others may have to wait for it. */
  private holds = false;
  /** What it was about to do and may hang in, as far as it has said so. */
  private doing: Doing | undefined;

  /** It is the second attempt to open the file, after this realm let go of what it had closed. */
  private hasCollected = false;

  constructor(name: string, options: LinkOptions) {
    this.name = name;
    this.options = options;
    this.id = randomNumber();
    this.sender = new Sender(this.id, this);
    this.watches = new WatchList(this.sender);
    this.ready = new Promise((resolve, reject) => {
      this.isReady = (failure) => (failure === undefined ? resolve() : reject(failure));
    });
    // Whoever asks for it is told; nobody has to.
    this.ready.catch(() => {});
    this.unhook = followPage(this);
  }

  // ---------------------------------------------------------------- requests

  request(
    of: Handle,
    call: string,
    argsOf: Args,
    writes: boolean,
    options?: CallOptions,
    place?: string,
    index?: string,
  ): Promise<unknown> {
    return new Promise((resolve, reject) => {
      // What is thrown in here rejects.
      this.admit(of);
      const { signal, timeout = LONG.test(call) ? LONGEST_TIMEOUT : of.timeout } = admitted(
        "A call",
        options,
      );
      signal?.throwIfAborted();
      const args = carried(argsOf);
      const now = monotonicNow();
      const deadline = now + timeout;
      of.waiting += 1;
      const settle = (ending: Ending) => {
        of.waiting -= 1;
        signal?.removeEventListener("abort", abort);
        if ("value" in ending) resolve(ending.value);
        else {
          const silence = this.worker !== undefined && !this.isUp ? SILENT : undefined;
          const reason = this.status.reason ?? silence;
          reject(errorOf(this.name, options?.[AS] ?? call, writes, ending, reason));
        }
      };
      const id = this.sender.request(
        place === undefined
          ? { call, args, writes, deadline, settle }
          : { call: "in", args: [place, call, args, index], writes, deadline, settle },
        now,
      );
      const abort = () => {
        this.sender.giveUp(id, { thrown: signal?.reason });
        this.sender.tell({ type: "stop", id });
      };
      signal?.addEventListener("abort", abort);
      this.soon();
    });
  }

  /** Throws if nothing can be asked for any more. */
  private admit(of: Handle): void {
    const refusal = of.refusal ?? this.refusal;
    if (refusal) throw refusal;
  }

  /** Sends at the end of the task what is asked for in it, in one message. */
  private soon(): void {
    this.need();
    if (this.isSoon) return;
    this.isSoon = true;
    // Requests made in so many microtasks, one after the other, still are one message.
    NOW.then()
      .then()
      .then(() => {
        this.isSoon = false;
        this.sender.flush();
      });
    this.arm();
  }

  private arm(): void {
    if (this.timer !== undefined || this.sender.waiting === 0) return;
    this.timer = setTimeout(() => {
      this.timer = undefined;
      this.sender.tick(monotonicNow());
      this.arm();
    }, TICK_MS);
  }

  // ---------------------------------------------------------------- the worker

  /** Has watches of a range begun, as soon as there is an owner. */
  watch(of: Handle, place: string | undefined, range: unknown, heard: Heard, over: Over) {
    // What cannot be cloned throws here, where it was given.
    const wanted = ownClone(range, "The range of a watch");
    this.admit(of);
    this.need();
    return this.watches.add({ of, place, range: wanted, heard, over, known: new Map() });
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
    if (this.sender.owner === undefined) this.show("starting");
    try {
      this.worker ??= this.begin();
      this.toHost({ type: "hello", name: this.name, version: this.options.version });
    } catch (error) {
      this.failed(error);
    }
  }

  private begin(): WorkerLike {
    const { worker: make } = this.options;
    const since = performance.now();
    watchPolicy();
    let worker: WorkerLike;
    try {
      // What is none, or makes none, throws here.
      worker = (make as () => WorkerLike)();
      worker.addEventListener("message", (event) => {
        if (this.worker === worker) this.listen((event as MessageEvent).data as FromHost);
      });
    } catch (cause) {
      throw noWorker(this.name, cause);
    }
    if (taken.has(worker)) throw noWorker(this.name);
    taken.add(worker);
    worker.addEventListener("error", (event) => {
      // What throws in one that runs ends nothing.
      if (this.worker === worker && !this.isUp) {
        this.failed(broken(this.name, event as ErrorEvent, since));
      }
    });
    worker.start?.();
    // A port may lead anywhere; what workers have is of this origin.
    const isWorker = typeof Worker === "function" && worker instanceof Worker;
    if (isWorker && !links.has(this.name)) links.set(this.name, this);
    return worker;
  }

  private toHost(message: ToHost): void {
    this.worker?.postMessage(message);
  }

  private listen(message: FromHost): void {
    this.deafMs = undefined;
    switch (message.type) {
      case "up":
        this.isUp = true;
        this.sender.build = message.build;
        this.json = new Set(message.json);
        this.join(message);
        break;
      case "alive":
        this.guard(message.lock);
        break;
      case "state":
        this.holds = message.state !== "waiting";
        if (this.sender.owner === undefined && !this.asleep) {
          const { state, progress } = message;
          this.show(state === "opening" ? "opening" : "waiting", WAITS[state], progress);
        }
        break;
      case "doing":
        this.doing = message;
        break;
      case "outdated":
        this.outdate(fromWire(message.error));
        break;
      case "failed":
        if (message.error.code === "VARVE_OUT_OF_MEMORY" && !this.hasCollected) {
          this.hasCollected = true;
          collect();
          this.start();
          break;
        }
        this.hasCollected = false;
        this.failed(fromWire(message.error));
        break;
      case "visited":
        if (this.local !== undefined) this.ways?.offer(this.local);
        break;
      case "released":
        this.released?.();
        break;
      default:
        if (message.type === "here") {
          this.local = message.owner;
          this.holds = true;
        }
        this.hear(message);
    }
  }

  /** Hears when the worker ends: then nobody else has the lock that it holds. */
  private guard(lock: string): void {
    const { worker } = this;
    const since = monotonicNow();
    const guarding = new AbortController();
    this.guarding = guarding;
    navigator.locks
      .request(lock, guarding, () => {
        if (this.worker !== worker) return;
        this.lose();
        // One that ends again and again is begun anew when it is noticed that nobody answers.
        if (monotonicNow() > since + LIFE_MS) this.need();
      })
      .catch(() => {});
  }

  /** Ends the worker, and with it the owner that it may have been. */
  private lose(): void {
    const { local } = this;
    this.dismiss();
    this.sender.lose(local);
    if (this.sender.owner === undefined) this.show("idle");
  }

  /** Something an owner says, here or elsewhere. */
  hear(message: ToClient): void {
    if (this.asleep) return;
    const { state, reason, progress } = this.status;
    const { owner } = this.sender;
    this.sender.hear(message, monotonicNow());
    if (message.type === "seen") {
      // What one that is gone has told comes too late: the next one tells all that there is.
      if (message.owner === owner) this.watches.hear(message);
      return;
    }
    if (message.type === "progress") {
      this.show(state, reason, message.progress);
      return;
    }
    if (message.type === "here") this.watches.renew(message.owner !== owner);
    if (this.sender.owner === message.owner) {
      this.show("open", undefined, message.type === "here" ? undefined : progress);
      this.isReady();
    } else if (message.type === "gone" && this.sender.owner === undefined) {
      if (this.status.state === "open") this.show("waiting", "The owner has handed over.");
      this.need();
    }
  }

  private async failed(error: unknown): Promise<void> {
    this.dismiss();
    // An owner elsewhere answers all the same. When there is none any more, it is tried anew.
    const { owner } = this.sender;
    if (owner !== undefined) {
      if ((await this.ways?.isOwned()) !== false || this.worker !== undefined) return;
      this.sender.lose(owner);
    }
    this.part();
    this.show("idle", (error as Error).message);
    this.isReady(error);
    this.sender.endAll((one) => (one.sent ? { lapsed: "unknown" } : { thrown: error }));
  }

  /** Writes that were sent are still answered, for they may have been done. All else ends. */
  private outdate(error: Error): void {
    if (this.refusal !== undefined) return;
    this.refusal = error;
    this.part();
    this.show("outdated", error.message);
    this.isReady(error);
    this.sender.endAll((one) => (one.write > 0 ? undefined : { thrown: error }));
    this.watches.stop(error);
    for (const { tell } of this.handles) tell("outdated");
  }

  private dismiss(): void {
    const { worker } = this;
    this.isUp = false;
    this.worker = undefined;
    this.local = undefined;
    this.holds = false;
    this.doing = undefined;
    this.deafMs = undefined;
    this.guarding?.abort();
    if (worker?.terminate) worker.terminate();
    else if (worker) {
      worker.postMessage({ type: "release" });
      // What has no end can be begun with again.
      if (worker.close) worker.close();
      else taken.delete(worker);
    }
  }

  // ---------------------------------------------------------------- owners elsewhere

  private join({ channel, program }: Up): void {
    if (channel === undefined || this.ways !== undefined || this.asleep) return;
    this.ways = waysOf(channel, this.id, this, program);
    this.sender.ask();
  }

  /** A client elsewhere has sent a port to the owner of this page. */
  visit(port: MessagePort): void {
    this.worker?.postMessage({ type: "visit" }, [port]);
  }

  private leave(): void {
    this.ways?.close();
    this.ways = undefined;
  }

  ask(owner: string, message: ToOwner): void {
    if (owner === this.local) this.toHost(message);
    else this.ways?.post(owner, message);
  }

  who(message: Who): void {
    if (this.asleep) return;
    if (this.sender.isUnheard && this.status.state === "open") {
      this.show("waiting", "The owner does not answer: it may be asleep or busy.");
    }
    // It could not be had before, was ended by something that nobody tells, or hangs.
    if (this.isDeaf()) this.loseHung();
    if (this.worker === undefined) this.start();
    this.toHost(message);
    this.ways?.who(message);
  }

  /**
   * A client elsewhere waits. If this page's worker has the database and hangs, as in a procedure without an
   * end, nobody but this page can end it: then another worker gets its lock.
   */
  asked(): void {
    if (this.asleep || !this.holds) return;
    if (this.isDeaf()) {
      this.loseHung();
      this.need();
    } else this.toHost({ type: "who", round: 0, client: this.id });
  }

  /** Ends the worker as it hangs, and tells all that it was the owner. */
  private loseHung(): void {
    const { local, doing } = this;
    if (local !== undefined) {
      const gone = { type: "gone", owner: local, hung: true, doing } as const;
      this.sender.hear(gone, 0);
      this.ways?.who(gone);
    }
    this.lose();
  }

  /** Whether the worker has said nothing for too long although it was asked. */
  private isDeaf(): boolean {
    const now = monotonicNow();
    const { deafMs } = this;
    this.deafMs = deafMs === undefined ? 0 : deafMs + Math.min(now - this.askedAt, DEAF_STEP_MS);
    this.askedAt = now;
    return this.deafMs > DEAF_MS;
  }

  // ---------------------------------------------------------------- what the page goes through

  /**
   * The page goes or sleeps: others are to have the file. The worker is ended, for it could be ended or
   * fall asleep with the page before it lets go; but not before it has done what it was asked for.
   */
  sleep(): void {
    if (this.worker === undefined || this.asleep || this.handles.size === 0) return;
    this.asleep = true;
    this.sender.flush(true);
    if (this.local !== undefined && this.sender.waiting > 0) hesitate(LAST_MS);
    this.dismiss();
    this.leave();
    this.sender.owner = undefined;
    this.show("suspended", "The page is asleep.");
  }

  wake(): void {
    if (!this.asleep) return;
    this.asleep = false;
    this.start();
  }

  // ---------------------------------------------------------------- the end

  /** Waits for what this client has asked for. With the last of them the worker hands over. */
  async close(of: Handle): Promise<void> {
    const refusal = closed(this.name);
    of.refusal = refusal;
    this.sender.flush();
    while (of.waiting > 0) {
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    this.watches.stop(undefined, of);
    this.handles.delete(of);
    if (this.handles.size === 0) await this.end(refusal);
    of.closed = { state: "closed", owner: undefined, reason: undefined };
    of.tell("status");
  }

  private async end(refusal: unknown): Promise<void> {
    this.refusal = refusal;
    this.part();
    this.unhook();
    clearTimeout(this.timer);
    if (this.isUp) {
      await new Promise<void>((resolve) => {
        this.released = resolve;
        this.timer = setTimeout(resolve, CLOSE_MS);
        this.toHost({ type: "release" });
      });
      clearTimeout(this.timer);
    }
    this.dismiss();
    this.leave();
    this.isReady(refusal);
  }

  /** Nobody joins it any more. */
  private part(): void {
    if (links.get(this.name) === this) links.delete(this.name);
  }

  private show(state: ClientStatus["state"], reason?: string, progress?: ClientProgress): void {
    // That is its last word.
    if (this.status.state === "outdated") return;
    const { owner: known } = this.sender;
    const owner = known === undefined ? undefined : known === this.local ? "here" : "elsewhere";
    const { status } = this;
    const isSame = status.state === state && status.owner === owner && status.reason === reason;
    if (isSame && status.progress === progress) return;
    this.status = { state, owner, reason, ...(progress && { progress }) };
    for (const { tell } of this.handles) tell("status");
  }
}

/**
 * Has the platform free what this realm has closed. A page and its workers share one address space, and each
 * frees only its own memory when it finds no room for more.
 */
function collect(): void {
  try {
    new WebAssembly.Memory({ initial: 1 });
  } catch {
    // Nothing was closed.
  }
}

/** 52 random bits, and never 0. */
function randomNumber(): number {
  const [high = 0, low = 0] = crypto.getRandomValues(new Uint32Array(2));
  return high * 2 ** 20 + (low >>> 12) + 1;
}
