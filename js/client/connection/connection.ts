/**
 * The connection of a realm to a database: its worker, the transport to other owners, timers and page
 * lifecycle.
 */

import { checkedOptions, MAX_TIMEOUT_MS } from "../../session/checked-options.js";
import { clearTimeout, monotonicNow, originTime, setTimeout } from "../../util/clock.js";
import { CALL_NAME, checkedRange } from "../protocol/call-options.js";
import { type Subscribe, WatchList } from "../protocol/client-subscriptions.js";
import { fromWire } from "../protocol/errors.js";
import { carried, ownClone, type Storing } from "../protocol/json-values.js";
import {
  type ClientProgress,
  type OwnerQuery,
  PROTOCOL,
  type RetriedHungRequests,
  type ToClient,
  type ToOwner,
} from "../protocol/messages.js";
import { RequestQueue, type RequestQueuePort, type Settlement } from "../protocol/request-queue.js";
import type { Args, Caller, CallOptions, ClientStatus, WorkerLike } from "./caller.js";
import { broken, closed, errorOf, NO_WORKER_MESSAGE, noWorker, watchPolicy } from "./errors.js";
import { busyWait, onPageLifecycle, type PageListener } from "./page-lifecycle.js";
import { isHeld, openTransport, type Transport, type TransportListener } from "./transport.js";
import type { FromWorker, OwnAnnouncement, Ready, ToWorker } from "./worker-messages.js";
import { WorkerWatchdog } from "./worker-watchdog.js";

/** The options of a connection. */
export interface ConnectionOptions {
  readonly worker: (() => WorkerLike) | undefined;
  readonly version: number | undefined;
}

/** A client's handle on a connection, which it may share with other clients of this realm. */
export class ClientHandle implements Caller {
  readonly retryQueue: Set<() => void> = new Set();
  readonly closers: Set<() => void> = new Set();
  readonly timeout: number;
  /** Emits an event to the program. */
  readonly emit: (event: "status" | "outdated") => void;
  /** The number of its requests without an answer. */
  unanswered = 0;
  writes = 0;
  /** The error with which further calls reject. */
  refusal: unknown;
  /** The final status, once the client is closed. */
  finalStatus: ClientStatus | undefined;
  private readonly connection: Connection;
  private closing: Promise<void> | undefined;

  constructor(connection: Connection, timeout: number, emit: ClientHandle["emit"]) {
    this.connection = connection;
    this.timeout = timeout;
    this.emit = emit;
    connection.handles.add(this);
  }

  get status(): ClientStatus {
    return this.finalStatus ?? this.connection.status;
  }

  get ready(): Promise<void> {
    return this.connection.whenReady();
  }

  request(...call: Parameters<Caller["request"]>) {
    const [, , writes] = call;
    if (writes) this.writes += 1;
    return this.connection.request(this, ...call);
  }

  watch(collection: string | undefined, range: unknown, call: string, index?: string): Subscribe {
    return (...more) => this.connection.watch(this, collection, range, call, index, ...more);
  }

  storingOf(collection: string): Storing {
    const { storing } = this.connection;
    return storing && (storing.get(collection) ?? false);
  }

  close(): Promise<void> {
    for (const close of this.closers) close();
    this.closing ??= this.connection.close(this);
    return this.closing;
  }
}

/** Calls whose time grows with the size of the file. */
const UNLIMITED_CALLS = /^(compact|verify|export)$/;

/** The interval at which deadlines are checked while a request waits. */
const TICK_MS = 100;

/**
 * A resolved promise: its reactions cost a third of `queueMicrotask`, and in Firefox 6 µs less than `await`.
 */
const RESOLVED = Promise.resolve();

/** The time that a worker has for pending requests when its page ends. */
const PAGE_END_WAIT_MS = 100;

/** The time that a worker has to hand over when its client closes. */
const CLOSE_MS = 5_000;

/** An announcement that was under way for longer has a clock that is too old for the deadlines of requests. */
const FRESH_MS = 20;

/** A worker that ends after at least so long is replaced at once. */
const MIN_WORKER_UPTIME_MS = 1_000;

const WAITING_REASONS: Readonly<Record<string, string>> = {
  waiting: "Another tab has the database.",
  busy: "A closing or sleeping tab still holds the file.",
};

/** The connections of this realm that further clients may share, by the names of their databases. */
export const connections: Map<string, Connection> = new Map();

/**
 * The workers that a connection of this realm uses, or has ended. Two connections with one worker would receive
 * each other's answers, and an ended worker does not answer.
 */
const usedWorkers = new WeakSet<WorkerLike>();

/** The connection of a realm to one database, shared by its clients. */
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
  /** How the collections store their values, by their names; set when the worker is ready. */
  storing: ReadonlyMap<string, Storing> | undefined;
  /** Whether the worker has sent `Ready`. */
  private isWorkerReady = false;
  /** The name of this connection's own worker as the owner, while it is the owner. */
  private localOwner: string | undefined;
  private transport: Transport | undefined;
  private asksOthersOnly = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isFlushScheduled = false;
  private settleReady!: (failure?: unknown) => void;
  private released: (() => void) | undefined;
  /** The error with which further calls reject, once the connection is outdated or closed. */
  private refusal: unknown;
  private readonly removeListeners: () => void;
  private isSuspended = false;
  /** Ends the wait for the worker's lock. Acquiring a Web Lock while in the bfcache evicts the page. */
  private lockRequest: AbortController | undefined;
  private readonly watchdog = new WorkerWatchdog();
  /** Whether the worker has the database or is opening it, so that other clients may wait for it. */
  private hasDatabase = false;
  /** The retried requests that the worker has reported and may hang in. */
  private retriedHung: RetriedHungRequests | undefined;

  /** Whether the file is being opened for the second time, after this realm has freed closed databases. */
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
    // Handled here so that an unused promise causes no unhandled rejection.
    this.ready.catch(() => {});
    this.removeListeners = onPageLifecycle(this);
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
      // An error thrown in here rejects the promise.
      this.assertUsable(client);
      const { signal, timeout = UNLIMITED_CALLS.test(call) ? MAX_TIMEOUT_MS : client.timeout } =
        checkedOptions("A call", options);
      signal?.throwIfAborted();
      const args = carried(argsOf);
      const now = monotonicNow();
      const deadline = now + timeout;
      client.unanswered += 1;
      const settle = (settlement: Settlement) => {
        client.unanswered -= 1;
        signal?.removeEventListener("abort", abort);
        if ("value" in settlement) resolve(settlement.value);
        else {
          const startingReason =
            this.worker !== undefined && !this.isWorkerReady ? NO_WORKER_MESSAGE : undefined;
          const reason = this.status.reason ?? startingReason;
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

  /** Throws if further calls are refused. */
  private assertUsable(client: ClientHandle): void {
    const refusal = client.refusal ?? this.refusal;
    if (refusal) throw refusal;
  }

  /** Sends the requests of this task in one message at its end. */
  private scheduleFlush(): void {
    this.ensureWorker();
    if (this.isFlushScheduled) return;
    this.isFlushScheduled = true;
    // Waits three microtasks, so that requests made in consecutive microtasks form one message.
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

  // ---------------------------------------------------------------- worker

  /** Adds a watch of a range, which begins as soon as there is an owner. */
  watch(
    client: ClientHandle,
    collection: string | undefined,
    range: unknown,
    call: string,
    index: string | undefined,
    ...[onChanges, onEnd, rows]: Parameters<Subscribe>
  ) {
    // A bad range throws here, at the caller: with a listener, the program may not wait for the owner's answer.
    const cloneOfRange = ownClone(
      checkedRange(call, range, collection !== undefined, index !== undefined),
      "The range of a watch",
    );
    this.assertUsable(client);
    this.ensureWorker();
    return this.watches.add({
      client,
      collection,
      index,
      range: cloneOfRange,
      call,
      rows,
      onChanges,
      onEnd,
      knownVersions: new Map(),
    });
  }

  /** Starts a worker if there is neither a worker nor an owner. */
  ensureWorker(): void {
    if (this.worker === undefined && this.requests.owner === undefined) this.start();
  }

  /** Resolves when an owner answers. Starts the worker if necessary. */
  whenReady(): Promise<void> {
    if (this.status.state === "idle" && this.status.reason === undefined) this.start();
    return this.ready;
  }

  /** Starts the worker if there is none, and has it wait for ownership. */
  start(): void {
    if (this.refusal !== undefined) return;
    if (this.requests.owner === undefined) this.setStatus("starting");
    try {
      this.worker ??= this.startWorker();
      const { version } = this.options;
      this.toWorker({ type: "init", name: this.name, version, protocol: PROTOCOL });
    } catch (error) {
      this.workerFailed(error);
    }
  }

  private startWorker(): WorkerLike {
    const { worker: make } = this.options;
    if (make === undefined) throw noWorker(this.name);
    const since = monotonicNow();
    watchPolicy();
    let worker: WorkerLike;
    try {
      // An option that returns no worker throws here.
      worker = make();
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
      // An error in a running worker does not end it.
      if (this.worker === worker && !this.isWorkerReady) {
        this.workerFailed(broken(this.name, event as ErrorEvent, since));
      }
    });
    worker.start?.();
    // Only connections with a worker of this origin are shared: a port may lead anywhere.
    const isWorker = typeof Worker === "function" && worker instanceof Worker;
    if (isWorker && !connections.has(this.name)) connections.set(this.name, this);
    return worker;
  }

  private toWorker(message: ToWorker): void {
    this.worker?.postMessage(message);
  }

  private onWorkerMessage(message: FromWorker): void {
    this.watchdog.reset();
    switch (message.type) {
      case "ready":
        this.isWorkerReady = true;
        this.requests.build = message.build;
        this.storing = new Map(message.storing);
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
        this.onOwnerMessage(this.asAnswer(message));
    }
  }

  /**
   * An announcement of this page's worker that has just been sent states the owner's clock as an answer to a query does,
   * so no query is needed.
   */
  private asAnswer(message: ToClient): ToClient {
    if (message.type !== "owner" || !("sentAt" in message)) return message;
    const age = originTime() - (message as OwnAnnouncement).sentAt;
    return Math.abs(age) <= FRESH_MS ? { ...message, client: this.id } : message;
  }

  /** Waits for the lock that the worker holds until it ends, and so learns when that is. */
  private watchWorkerLock(lock: string): void {
    const { worker } = this;
    const since = monotonicNow();
    const guarding = new AbortController();
    this.lockRequest = guarding;
    const ended = () => {
      if (this.worker !== worker) return;
      this.discardWorker();
      // A worker that ends repeatedly is only replaced when queries stay unanswered.
      if (monotonicNow() > since + MIN_WORKER_UPTIME_MS) this.ensureWorker();
    };
    // In Chromium a page whose data was cleared has other locks than the workers that it starts from then on.
    isHeld(lock)
      .then((is) => (is ? navigator.locks.request(lock, guarding, ended) : undefined))
      .catch(() => {});
  }

  /** Ends the worker, and forgets the owner that it may have been. */
  private discardWorker(): void {
    const { localOwner } = this;
    this.endWorker();
    this.requests.ownerLost(localOwner);
    if (this.requests.owner === undefined) this.setStatus("idle");
  }

  /** Handles a message from an owner, local or in another realm. */
  onOwnerMessage(message: ToClient): void {
    if (this.isSuspended) return;
    const { state, reason, progress } = this.status;
    const { owner } = this.requests;
    this.requests.receive(message, monotonicNow());
    if (message.type === "changes") {
      // Changes from a former owner come too late: the next owner sends everything.
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
    // An owner in another realm still answers. The worker is started again once that owner is gone.
    const { owner } = this.requests;
    if (owner !== undefined) {
      if ((await this.transport?.hasOwner()) !== false || this.worker !== undefined) return;
      this.requests.ownerLost(owner);
    }
    this.stopSharing();
    this.setStatus("idle", (error as Error).message);
    this.settleReady(error);
    this.requests.endAll((request) => (request.sent ? { noAnswer: "unknown" } : { thrown: error }));
  }

  /** Refuses further calls. Writes that were sent are still answered, for they may have been done. */
  private becomeOutdated(error: Error): void {
    if (this.refusal !== undefined) return;
    this.refusal = error;
    this.stopSharing();
    this.setStatus("outdated", error.message);
    this.settleReady(error);
    this.requests.endAll((request) => (request.write > 0 ? undefined : { thrown: error }));
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
    this.watchdog.reset();
    this.lockRequest?.abort();
    if (worker?.terminate) worker.terminate();
    else if (worker) {
      worker.postMessage({ type: "release" });
      // A port that cannot be closed may be used again.
      if (worker.close) worker.close();
      else usedWorkers.delete(worker);
    }
  }

  // ---------------------------------------------------------------- owners in other realms

  private openTransport({ channel, program }: Ready): void {
    if (channel === undefined || this.transport !== undefined || this.isSuspended) return;
    this.transport = openTransport(channel, this.id, this, program);
    // This page's worker reports by itself that it is the owner, and is starting now.
    this.asksOthersOnly = true;
    this.requests.findOwner();
    this.asksOthersOnly = false;
  }

  /** Passes a port from a client in another realm to this page's owner. */
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
    if (this.requests.isOwnerUnresponsive && this.status.state === "open") {
      this.setStatus("waiting", "The owner does not answer: it may be asleep or busy.");
    }
    // The worker could not be started before, has ended unnoticed, or hangs.
    if (this.watchdog.isUnresponsive()) this.replaceHungWorker();
    if (this.worker === undefined) this.start();
    if (!this.asksOthersOnly) this.toWorker(message);
    this.transport?.broadcast(message);
  }

  /**
   * A client in another realm waits for the owner. If this page's worker has the database and hangs, as in a
   * procedure without an end, only this page can end it. Another worker then gets its lock.
   */
  onOwnerQuery(): void {
    if (this.isSuspended || !this.hasDatabase) return;
    if (this.watchdog.isUnresponsive()) {
      this.replaceHungWorker();
      this.ensureWorker();
    } else this.toWorker({ type: "find-owner", round: 0, client: this.id });
  }

  /** Ends the hanging worker, and reports to every client that it was the owner. */
  private replaceHungWorker(): void {
    const { localOwner, retriedHung } = this;
    if (localOwner !== undefined) {
      const resignation = {
        type: "resigned",
        owner: localOwner,
        hung: true,
        retriedHung,
      } satisfies ToClient;
      this.requests.receive(resignation, 0);
      this.transport?.broadcast(resignation);
    }
    this.discardWorker();
  }

  // ---------------------------------------------------------------- page lifecycle

  /**
   * Releases the file, because the page ends or sleeps. The worker is ended, since it could end or sleep with
   * the page while it has the file. It first has a short time for pending requests.
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

  // ---------------------------------------------------------------- close

  /** Waits for this client's requests. With the last client of the connection, the worker hands over. */
  async close(client: ClientHandle): Promise<void> {
    const refusal = closed(this.name);
    client.refusal = refusal;
    this.requests.flush();
    this.watches.stop(undefined, client);
    while (client.unanswered > 0) {
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    this.handles.delete(client);
    if (this.handles.size === 0) await this.end(refusal);
    client.finalStatus = { state: "closed", owner: undefined, reason: undefined };
    client.emit("status");
  }

  private async end(refusal: unknown): Promise<void> {
    this.refusal = refusal;
    this.stopSharing();
    this.removeListeners();
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

  /** Stops sharing this connection with further clients. */
  private stopSharing(): void {
    if (connections.get(this.name) === this) connections.delete(this.name);
  }

  private setStatus(
    state: ClientStatus["state"],
    reason?: string,
    progress?: ClientProgress,
  ): void {
    // An outdated connection keeps that state.
    if (this.status.state === "outdated") return;
    const { owner: currentOwner } = this.requests;
    const owner =
      currentOwner === undefined
        ? undefined
        : currentOwner === this.localOwner
          ? "here"
          : "elsewhere";
    const { status } = this;
    const isSame = status.state === state && status.owner === owner && status.reason === reason;
    if (isSame && status.progress === progress) return;
    this.status = { state, owner, reason, ...(progress && { progress }) };
    for (const { emit } of this.handles) emit("status");
  }
}

/**
 * Makes the platform free the databases that this realm has closed. A page and its workers share one address
 * space, and each frees its own memory only when it cannot allocate more.
 */
function collectGarbage(): void {
  try {
    new WebAssembly.Memory({ initial: 1 });
  } catch {
    // The memory is not needed.
  }
}

/** 52 random bits, and never 0. */
function randomNumber(): number {
  const [high = 0, low = 0] = crypto.getRandomValues(new Uint32Array(2));
  return high * 2 ** 20 + (low >>> 12) + 1;
}
