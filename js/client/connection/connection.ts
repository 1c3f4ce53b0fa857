/** A connection of this realm: its worker, the ways to owners elsewhere, time, and what the page goes through. */

import { clearTimeout, monotonicNow, setTimeout } from "../../util/clock.js";
import { CALL_NAME, checkedOptions, LONGEST_TIMEOUT } from "../protocol/call-options.js";
import {
  type ChangeListener,
  type EndListener,
  type Subscribe,
  WatchList,
} from "../protocol/client-subscriptions.js";
import { fromWire } from "../protocol/errors.js";
import { carried, ownClone } from "../protocol/json-values.js";
import type {
  ClientProgress,
  OwnerQuery,
  RetriedHungRequests,
  ToClient,
  ToOwner,
} from "../protocol/messages.js";
import { RequestQueue, type RequestQueuePort, type Settlement } from "../protocol/request-queue.js";
import { broken, closed, errorOf, noWorker, SILENT, watchPolicy } from "./errors.js";
import { busyWait, onPageLifecycle, type PageListener } from "./page-lifecycle.js";
import { isHeld, openTransport, type Transport, type TransportListener } from "./transport.js";
import type { FromWorker, Ready, ToWorker } from "./worker-messages.js";

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
  [CALL_NAME]?: string;
}

/** Gives what a call is about, as it is now: the program may change its bytes and objects later. */
export type Args = () => readonly unknown[];

/** How calls travel. A place is a collection; without one it is the raw keys that are meant. */
export interface Caller {
  /** Those that do again what has met a conflict, one behind the other. */
  readonly retryQueue: Set<() => void>;
  request(
    call: string,
    args: Args,
    writes: boolean,
    options?: CallOptions,
    collection?: string,
    index?: string,
  ): Promise<unknown>;
  watch(collection: string | undefined, range: unknown): Subscribe;
  /** Whether the values of a collection are JSON; `undefined` as long as no worker has said it. */
  isJson(collection: string): boolean | undefined;
}

/** What a link needs to know. */
export interface ConnectionOptions {
  readonly worker: (() => WorkerLike) | undefined;
  readonly version: number | undefined;
}

/** What a client has of a connection, which may be that of others in this realm too. */
export class ClientHandle implements Caller {
  readonly retryQueue: Set<() => void> = new Set();
  readonly timeout: number;
  /** Something has happened that the program may want to hear of. */
  readonly emit: (event: "status" | "outdated") => void;
  /** How many of its requests have no answer. */
  waiting = 0;
  /** Why nothing can be asked for any more. */
  refusal: unknown;
  /** Its last status. */
  closed: ClientStatus | undefined;
  private readonly connection: Connection;
  private closing: Promise<void> | undefined;

  constructor(link: Connection, timeout: number, emit: ClientHandle["emit"]) {
    this.connection = link;
    this.timeout = timeout;
    this.emit = emit;
    link.handles.add(this);
  }

  get status(): ClientStatus {
    return this.closed ?? this.connection.status;
  }

  get ready(): Promise<void> {
    return this.connection.whenReady();
  }

  request(...call: Parameters<Caller["request"]>) {
    return this.connection.request(this, ...call);
  }

  watch(collection: string | undefined, range: unknown): Subscribe {
    return (onChanges, onEnd) => this.connection.watch(this, collection, range, onChanges, onEnd);
  }

  isJson(collection: string): boolean | undefined {
    return this.connection.json?.has(collection);
  }

  close(): Promise<void> {
    this.closing ??= this.connection.close(this);
    return this.closing;
  }
}

/** Calls that take as long as the file is large. */
const UNLIMITED_CALLS = /^(compact|verify|export)$/;

/** How often it is looked what is late, while anything is waited for. */
const TICK_MS = 100;

/** Its reactions cost a third of what `queueMicrotask` does, and in Firefox 6 µs less than `await`. */
const RESOLVED = Promise.resolve();

/** It has so long to do what it was asked for when its page goes. */
const PAGE_END_WAIT_MS = 100;

/** A worker has so long to hand over when its client closes. */
const CLOSE_MS = 5_000;

/** A worker of one's own that says nothing for so long, while it is asked again and again, is replaced. */
const UNRESPONSIVE_MS = 6_000;

/** Between two questions at most so much counts: a page that stood still has heard nothing meanwhile. */
const PROBE_STEP_MS = 1_000;

/** A worker that has lived for so long and then ended is replaced at once. */
const MIN_WORKER_LIFE_MS = 1_000;

const WAITING_REASONS: Readonly<Record<string, string>> = {
  waiting: "Another tab has the database.",
  busy: "A closing or sleeping tab still holds the file.",
};

/** Those of this realm that others may join, by the names of their databases. */
export const connections: Map<string, Connection> = new Map();

/**
 * What somebody in this realm speaks with, or has ended: two that speak with one worker would hear each other's
 * answers, and one that has ended says nothing.
 */
const usedWorkers = new WeakSet<WorkerLike>();

/** A connection. */
export class Connection implements RequestQueuePort, PageListener, TransportListener {
  readonly handles: Set<ClientHandle> = new Set();
  readonly options: ConnectionOptions;
  status: ClientStatus = { state: "idle", owner: undefined, reason: undefined };
  private readonly ready: Promise<void>;
  private readonly name: string;
  private readonly id: number;
  private readonly requests: RequestQueue;
  private readonly watches: WatchList;
  private worker: WorkerLike | undefined;
  /** The names of the collections whose values are JSON, when the worker has said it. */
  json: ReadonlySet<string> | undefined;
  /** Whether it has said that it runs. */
  private isWorkerReady = false;
  /** The owner that this client's own worker is, when it is that. */
  private localOwner: string | undefined;
  private transport: Transport | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isFlushScheduled = false;
  private settleReady!: (failure?: unknown) => void;
  private released: (() => void) | undefined;
  /** Why nothing can be asked for any more: it is outdated, or over. */
  private refusal: unknown;
  private readonly unhook: () => void;
  private isSuspended = false;
  /** Waits for the worker's lock. A page that was given one while it is kept for going back to is not kept. */
  private lockRequest: AbortController | undefined;
  /** For how long the worker was asked and has said nothing, up to the last time that it was asked. */
  private unresponsiveMs: number | undefined;
  private probedAt = 0;
  /** Whether the worker has the database or is about to, so that others may have to wait for it. */
  private hasDatabase = false;
  /** What it was about to do and may hang in, as far as it has said so. */
  private retriedHung: RetriedHungRequests | undefined;

  /** It is the second attempt to open the file, after this realm let go of what it had closed. */
  private hasFreedMemory = false;

  constructor(name: string, options: ConnectionOptions) {
    this.name = name;
    this.options = options;
    this.id = randomNumber();
    this.requests = new RequestQueue(this.id, this);
    this.watches = new WatchList(this.requests);
    this.ready = new Promise((resolve, reject) => {
      this.settleReady = (failure) => (failure === undefined ? resolve() : reject(failure));
    });
    // Whoever asks for it is told; nobody has to.
    this.ready.catch(() => {});
    this.unhook = onPageLifecycle(this);
  }

  // ---------------------------------------------------------------- requests

  request(
    client: ClientHandle,
    call: string,
    argsOf: Args,
    writes: boolean,
    options?: CallOptions,
    collection?: string,
    index?: string,
  ): Promise<unknown> {
    return new Promise((resolve, reject) => {
      // What is thrown in here rejects.
      this.assertUsable(client);
      const { signal, timeout = UNLIMITED_CALLS.test(call) ? LONGEST_TIMEOUT : client.timeout } =
        checkedOptions("A call", options);
      signal?.throwIfAborted();
      const args = carried(argsOf);
      const now = monotonicNow();
      const deadline = now + timeout;
      client.waiting += 1;
      const settle = (settlement: Settlement) => {
        client.waiting -= 1;
        signal?.removeEventListener("abort", abort);
        if ("value" in settlement) resolve(settlement.value);
        else {
          const silentWorker =
            this.worker !== undefined && !this.isWorkerReady ? SILENT : undefined;
          const reason = this.status.reason ?? silentWorker;
          reject(errorOf(this.name, options?.[CALL_NAME] ?? call, writes, settlement, reason));
        }
      };
      const id = this.requests.request(
        collection === undefined
          ? { call, args, writes, deadline, settle }
          : { call: "in", args: [collection, call, args, index], writes, deadline, settle },
        now,
      );
      const abort = () => {
        this.requests.cancel(id, { thrown: signal?.reason });
        this.requests.send({ type: "cancel", id });
      };
      signal?.addEventListener("abort", abort);
      this.scheduleFlush();
    });
  }

  /** Throws if nothing can be asked for any more. */
  private assertUsable(client: ClientHandle): void {
    const refusal = client.refusal ?? this.refusal;
    if (refusal) throw refusal;
  }

  /** Sends at the end of the task what is asked for in it, in one message. */
  private scheduleFlush(): void {
    this.ensureWorker();
    if (this.isFlushScheduled) return;
    this.isFlushScheduled = true;
    // Requests made in so many microtasks, one after the other, still are one message.
    RESOLVED.then()
      .then()
      .then(() => {
        this.isFlushScheduled = false;
        this.requests.flush();
      });
    this.arm();
  }

  private arm(): void {
    if (this.timer !== undefined || this.requests.waiting === 0) return;
    this.timer = setTimeout(() => {
      this.timer = undefined;
      this.requests.tick(monotonicNow());
      this.arm();
    }, TICK_MS);
  }

  // ---------------------------------------------------------------- the worker

  /** Has watches of a range begun, as soon as there is an owner. */
  watch(
    client: ClientHandle,
    collection: string | undefined,
    range: unknown,
    onChanges: ChangeListener,
    onEnd: EndListener,
  ) {
    // What cannot be cloned throws here, where it was given.
    const cloneOfRange = ownClone(range, "The range of a watch");
    this.assertUsable(client);
    this.ensureWorker();
    return this.watches.add({
      client: client,
      collection: collection,
      range: cloneOfRange,
      onChanges: onChanges,
      onEnd: onEnd,
      knownVersions: new Map(),
    });
  }

  /** Has a worker, if there is none. */
  ensureWorker(): void {
    if (this.worker === undefined && this.requests.owner === undefined) this.start();
  }

  /** That it is ready, for which it may have to begin. */
  whenReady(): Promise<void> {
    if (this.status.state === "idle" && this.status.reason === undefined) this.start();
    return this.ready;
  }

  /** Has a worker stand for ownership. */
  start(): void {
    if (this.refusal !== undefined) return;
    if (this.requests.owner === undefined) this.setStatus("starting");
    try {
      this.worker ??= this.startWorker();
      this.toWorker({ type: "init", name: this.name, version: this.options.version });
    } catch (error) {
      this.workerFailed(error);
    }
  }

  private startWorker(): WorkerLike {
    const { worker: make } = this.options;
    const since = monotonicNow();
    watchPolicy();
    let worker: WorkerLike;
    try {
      // What is none, or makes none, throws here.
      worker = (make as () => WorkerLike)();
      worker.addEventListener("message", (event) => {
        if (this.worker === worker)
          this.onWorkerMessage((event as MessageEvent).data as FromWorker);
      });
    } catch (cause) {
      throw noWorker(this.name, cause);
    }
    if (usedWorkers.has(worker)) throw noWorker(this.name);
    usedWorkers.add(worker);
    worker.addEventListener("error", (event) => {
      // What throws in one that runs ends nothing.
      if (this.worker === worker && !this.isWorkerReady) {
        this.workerFailed(broken(this.name, event as ErrorEvent, since));
      }
    });
    worker.start?.();
    // A port may lead anywhere; what workers have is of this origin.
    const isWorker = typeof Worker === "function" && worker instanceof Worker;
    if (isWorker && !connections.has(this.name)) connections.set(this.name, this);
    return worker;
  }

  private toWorker(message: ToWorker): void {
    this.worker?.postMessage(message);
  }

  private onWorkerMessage(message: FromWorker): void {
    this.unresponsiveMs = undefined;
    switch (message.type) {
      case "ready":
        this.isWorkerReady = true;
        this.requests.build = message.build;
        this.json = new Set(message.json);
        this.openTransport(message);
        break;
      case "lifetime-lock":
        this.watchWorkerLock(message.lock);
        break;
      case "state":
        this.hasDatabase = message.state !== "waiting";
        if (this.requests.owner === undefined && !this.isSuspended) {
          const { state, progress } = message;
          this.setStatus(
            state === "opening" ? "opening" : "waiting",
            WAITING_REASONS[state],
            progress,
          );
        }
        break;
      case "retried-hung":
        this.retriedHung = message;
        break;
      case "outdated":
        this.becomeOutdated(fromWire(message.error));
        break;
      case "failed":
        if (message.error.code === "VARVE_OUT_OF_MEMORY" && !this.hasFreedMemory) {
          this.hasFreedMemory = true;
          collectGarbage();
          this.start();
          break;
        }
        this.hasFreedMemory = false;
        this.workerFailed(fromWire(message.error));
        break;
      case "ports-wanted":
        if (this.localOwner !== undefined) this.transport?.announceOwner(this.localOwner);
        break;
      case "released":
        this.released?.();
        break;
      default:
        if (message.type === "owner") {
          this.localOwner = message.owner;
          this.hasDatabase = true;
        }
        this.onOwnerMessage(message);
    }
  }

  /** Hears when the worker ends: then nobody else has the lock that it holds. */
  private watchWorkerLock(lock: string): void {
    const { worker } = this;
    const since = monotonicNow();
    const guarding = new AbortController();
    this.lockRequest = guarding;
    const ended = () => {
      if (this.worker !== worker) return;
      this.loseWorker();
      // One that ends again and again is begun anew when it is noticed that nobody answers.
      if (monotonicNow() > since + MIN_WORKER_LIFE_MS) this.ensureWorker();
    };
    // In Chromium a page whose data was cleared has other locks than the workers that it starts from then on.
    isHeld(lock)
      .then((is) => (is ? navigator.locks.request(lock, guarding, ended) : undefined))
      .catch(() => {});
  }

  /** Ends the worker, and with it the owner that it may have been. */
  private loseWorker(): void {
    const { localOwner } = this;
    this.endWorker();
    this.requests.ownerLost(localOwner);
    if (this.requests.owner === undefined) this.setStatus("idle");
  }

  /** Something an owner says, here or elsewhere. */
  onOwnerMessage(message: ToClient): void {
    if (this.isSuspended) return;
    const { state, reason, progress } = this.status;
    const { owner } = this.requests;
    this.requests.receive(message, monotonicNow());
    if (message.type === "changes") {
      // What one that is gone has told comes too late: the next one tells all that there is.
      if (message.owner === owner) this.watches.receive(message);
      return;
    }
    if (message.type === "progress") {
      this.setStatus(state, reason, message.progress);
      return;
    }
    if (message.type === "owner") this.watches.renew(message.owner !== owner);
    if (this.requests.owner === message.owner) {
      this.setStatus("open", undefined, message.type === "owner" ? undefined : progress);
      this.settleReady();
    } else if (message.type === "resigned" && this.requests.owner === undefined) {
      if (this.status.state === "open") this.setStatus("waiting", "The owner has handed over.");
      this.ensureWorker();
    }
  }

  private async workerFailed(error: unknown): Promise<void> {
    this.endWorker();
    // An owner elsewhere answers all the same. When there is none any more, it is tried anew.
    const { owner } = this.requests;
    if (owner !== undefined) {
      if ((await this.transport?.hasOwner()) !== false || this.worker !== undefined) return;
      this.requests.ownerLost(owner);
    }
    this.unlist();
    this.setStatus("idle", (error as Error).message);
    this.settleReady(error);
    this.requests.endAll((one) => (one.sent ? { noAnswer: "unknown" } : { thrown: error }));
  }

  /** Writes that were sent are still answered, for they may have been done. All else ends. */
  private becomeOutdated(error: Error): void {
    if (this.refusal !== undefined) return;
    this.refusal = error;
    this.unlist();
    this.setStatus("outdated", error.message);
    this.settleReady(error);
    this.requests.endAll((one) => (one.write > 0 ? undefined : { thrown: error }));
    this.watches.stop(error);
    for (const { emit } of this.handles) emit("outdated");
  }

  private endWorker(): void {
    const { worker } = this;
    this.isWorkerReady = false;
    this.worker = undefined;
    this.localOwner = undefined;
    this.hasDatabase = false;
    this.retriedHung = undefined;
    this.unresponsiveMs = undefined;
    this.lockRequest?.abort();
    if (worker?.terminate) worker.terminate();
    else if (worker) {
      worker.postMessage({ type: "release" });
      // What has no end can be begun with again.
      if (worker.close) worker.close();
      else usedWorkers.delete(worker);
    }
  }

  // ---------------------------------------------------------------- owners elsewhere

  private openTransport({ channel, program }: Ready): void {
    if (channel === undefined || this.transport !== undefined || this.isSuspended) return;
    this.transport = openTransport(channel, this.id, this, program);
    this.requests.findOwner();
  }

  /** A client elsewhere has sent a port to the owner of this page. */
  attachPort(port: MessagePort): void {
    this.worker?.postMessage({ type: "attach-port" }, [port]);
  }

  private closeTransport(): void {
    this.transport?.close();
    this.transport = undefined;
  }

  post(owner: string, message: ToOwner): void {
    if (owner === this.localOwner) this.toWorker(message);
    else this.transport?.post(owner, message);
  }

  findOwner(message: OwnerQuery): void {
    if (this.isSuspended) return;
    if (this.requests.isOwnerSilent && this.status.state === "open") {
      this.setStatus("waiting", "The owner does not answer: it may be asleep or busy.");
    }
    // It could not be had before, was ended by something that nobody tells, or hangs.
    if (this.isUnresponsive()) this.replaceHungWorker();
    if (this.worker === undefined) this.start();
    this.toWorker(message);
    this.transport?.broadcast(message);
  }

  /**
   * A client elsewhere waits. If this page's worker has the database and hangs, as in a procedure without an
   * end, nobody but this page can end it: then another worker gets its lock.
   */
  onOwnerQuery(): void {
    if (this.isSuspended || !this.hasDatabase) return;
    if (this.isUnresponsive()) {
      this.replaceHungWorker();
      this.ensureWorker();
    } else this.toWorker({ type: "find-owner", round: 0, client: this.id });
  }

  /** Ends the worker as it hangs, and tells all that it was the owner. */
  private replaceHungWorker(): void {
    const { localOwner, retriedHung } = this;
    if (localOwner !== undefined) {
      const gone = { type: "resigned", owner: localOwner, hung: true, retriedHung } as const;
      this.requests.receive(gone, 0);
      this.transport?.broadcast(gone);
    }
    this.loseWorker();
  }

  /** Whether the worker has said nothing for too long although it was asked. */
  private isUnresponsive(): boolean {
    const now = monotonicNow();
    const { unresponsiveMs: deafMs } = this;
    this.unresponsiveMs =
      deafMs === undefined ? 0 : deafMs + Math.min(now - this.probedAt, PROBE_STEP_MS);
    this.probedAt = now;
    return this.unresponsiveMs > UNRESPONSIVE_MS;
  }

  // ---------------------------------------------------------------- what the page goes through

  /**
   * The page goes or sleeps: others are to have the file. The worker is ended, for it could be ended or
   * fall asleep with the page before it lets go; but not before it has done what it was asked for.
   */
  suspend(): void {
    if (this.worker === undefined || this.isSuspended || this.handles.size === 0) return;
    this.isSuspended = true;
    this.requests.flush(true);
    if (this.localOwner !== undefined && this.requests.waiting > 0) busyWait(PAGE_END_WAIT_MS);
    this.endWorker();
    this.closeTransport();
    this.requests.owner = undefined;
    this.setStatus("suspended", "The page is asleep.");
  }

  resume(): void {
    if (!this.isSuspended) return;
    this.isSuspended = false;
    this.start();
  }

  // ---------------------------------------------------------------- the end

  /** Waits for what this client has asked for. With the last of them the worker hands over. */
  async close(client: ClientHandle): Promise<void> {
    const refusal = closed(this.name);
    client.refusal = refusal;
    this.requests.flush();
    while (client.waiting > 0) {
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    this.watches.stop(undefined, client);
    this.handles.delete(client);
    if (this.handles.size === 0) await this.end(refusal);
    client.closed = { state: "closed", owner: undefined, reason: undefined };
    client.emit("status");
  }

  private async end(refusal: unknown): Promise<void> {
    this.refusal = refusal;
    this.unlist();
    this.unhook();
    clearTimeout(this.timer);
    if (this.isWorkerReady) {
      await new Promise<void>((resolve) => {
        this.released = resolve;
        this.timer = setTimeout(resolve, CLOSE_MS);
        this.toWorker({ type: "release" });
      });
      clearTimeout(this.timer);
    }
    this.endWorker();
    this.closeTransport();
    this.settleReady(refusal);
  }

  /** Nobody joins it any more. */
  private unlist(): void {
    if (connections.get(this.name) === this) connections.delete(this.name);
  }

  private setStatus(
    state: ClientStatus["state"],
    reason?: string,
    progress?: ClientProgress,
  ): void {
    // That is its last word.
    if (this.status.state === "outdated") return;
    const { owner: known } = this.requests;
    const owner =
      known === undefined ? undefined : known === this.localOwner ? "here" : "elsewhere";
    const { status } = this;
    const isSame = status.state === state && status.owner === owner && status.reason === reason;
    if (isSame && status.progress === progress) return;
    this.status = { state, owner, reason, ...(progress && { progress }) };
    for (const { emit } of this.handles) emit("status");
  }
}

/**
 * Has the platform free what this realm has closed. A page and its workers share one address space, and each
 * frees only its own memory when it finds no room for more.
 */
function collectGarbage(): void {
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
