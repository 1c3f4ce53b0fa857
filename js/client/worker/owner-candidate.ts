/**
 * A worker that may own the database: it waits for the lock, opens the file, answers clients of this page and
 * of other realms, and hands over when it is asked to.
 */

import type { MigrateProgress } from "../../collection/migrate.js";
import type { Database } from "../../database/database.js";
import { defaultStorage } from "../../database/default-storage.js";
import { openLocked, openRegistered } from "../../database/opening.js";
import { loadModule } from "../../engine/load-wasm.js";
import type { OpenProgress } from "../../session/options.js";
import { hasFolders, hasOpfs, opfs } from "../../storage/opfs.js";
import type { Storage } from "../../storage/storage.js";
import { monotonicNow, originTime, setTimeout } from "../../util/clock.js";
import { workerProgram } from "../connection/port-relay.js";
import {
  channelName,
  type FromWorker,
  type Program,
  type ToWorker,
} from "../connection/worker-messages.js";
import { toWire } from "../protocol/errors.js";
import {
  type Answer,
  type ClientProgress,
  compareBuilds,
  type Outcome,
  type OwnerAnnouncement,
  type Request,
  type RequestBatch,
  type ToClient,
  type ToOwner,
  type WireError,
} from "../protocol/messages.js";
import { buffersOf } from "../protocol/packed-rows.js";
import { type Build, buildOf, schemasDiffer, versionChanged } from "./app-version.js";
import { storingByName } from "./collection-handlers.js";
import { isJob } from "./jobs.js";
import { type HostOptions, Owner, ownerNow, type Respond } from "./owner.js";
import { ReadOnlyFallback } from "./read-only-fallback.js";

/** The pauses before a busy file is tried again, in order: its last owner may be about to close it. */
const BUSY_MS = [50, 50, 100, 200, 400, 800];

/** The least time between two progress reports. */
const PROGRESS_MS = 50;

/** The build of a candidate, sent to the others. */
interface BuildHello extends Build {
  /** Whether candidates of another build are to reply with theirs. */
  readonly wantsReply: boolean;
}

/** A candidate for the ownership of one database. */
export class OwnerCandidate {
  private readonly name: string;
  private readonly hostOptions: HostOptions;
  private readonly storage: Storage;
  /** The look-up that began before this candidate was made. */
  private lookup: Promise<void> | undefined;
  private readonly postToPage: (message: FromWorker) => void;
  private readonly id: string;
  /** The channel for clients in other realms, where there can be any. */
  private readonly channel: string | undefined;
  private readonly lifetimeLock: Promise<void> | undefined;
  private readonly program: Program | undefined;
  private broadcast: BroadcastChannel | undefined;
  /** The wait for ownership, or the ownership itself. */
  private candidacy: Candidacy | undefined;
  private owner: Owner | undefined;
  private readonly inboxes: Map<number, BroadcastChannel>;
  private readonly ports: MessagePort[];
  private progressPostedAt: number;
  /** The work that the last progress report was about. */
  private postedProgress: ClientProgress["doing"] | undefined;
  private readonly version: number;
  private readonly build: Build;
  /** The other builds known, by their names. */
  private readonly others: Map<string, Build>;
  /** Answers instead of an owner in realms that cannot own the database. */
  private readonly fallback: ReadOnlyFallback | undefined;
  private module: Promise<WebAssembly.Module> | undefined;
  private buildChannel: BroadcastChannel | undefined;
  /** Why this candidate no longer waits for ownership. */
  private outdated: WireError | undefined;

  constructor(
    name: string,
    hostOptions: HostOptions,
    version: number | undefined,
    postToPage: (message: FromWorker) => void,
    isWorker: boolean,
  ) {
    this.name = name;
    this.hostOptions = hostOptions;
    this.storage =
      hostOptions.storage ??
      hostOptions.options.storage ??
      (onlyReads() ? opfs() : defaultStorage());
    this.lookup = hostOptions.lookup;
    this.postToPage = postToPage;
    this.id = crypto.randomUUID();
    this.inboxes = new Map();
    this.ports = [];
    this.progressPostedAt = -PROGRESS_MS;
    this.version = hostOptions.version ?? version ?? 0;
    this.build = buildOf(this.version, hostOptions.collections);
    this.others = new Map();
    this.channel =
      this.storage.kind === "opfs" && locks() !== undefined
        ? channelName(this.storage.identity(name))
        : undefined;
    this.program = isWorker ? workerProgram() : undefined;
    this.lifetimeLock =
      isWorker && this.channel !== undefined ? this.holdLifetimeLock() : undefined;
    this.fallback =
      this.channel !== undefined && onlyReads() ? this.createFallback(this.channel) : undefined;
  }

  /** Holds a lock by which the page notices the end of this worker. Resolves once the lock is held. */
  private holdLifetimeLock(): Promise<void> {
    const lock = `varve:worker:${this.id}`;
    return new Promise((resolve) => {
      const hold = () => {
        this.postToPage({ type: "lifetime-lock", lock });
        resolve();
        return new Promise<never>(() => {});
      };
      // Without the lock, the page's queries find out later.
      locks()?.request(lock, hold).catch(resolve);
    });
  }

  /** Follows the owner of the database, for a realm that cannot own it. */
  private followOwner(channel: string, fallback: ReadOnlyFallback): void {
    this.exchangeBuilds(channel);
    this.broadcast = new BroadcastChannel(channel);
    this.broadcast.onmessage = ({ data }) => {
      const { type } = data as ToClient;
      if (type === "owner" || type === "resigned") fallback.invalidate();
      if (type === "resigned") fallback.offer((message) => this.postToPage(message));
    };
  }

  private createFallback(lock: string): ReadOnlyFallback {
    const { id, name, storage, hostOptions } = this;
    return new ReadOnlyFallback({
      id,
      name,
      storage,
      hostOptions,
      lock,
      module: () => this.loaded(),
      refusalFor: (build) => this.refusalFor(build),
      isLate: (version) => {
        if (version > this.version) this.becomeOutdated(buildOf(version, {}).build);
        return version > this.version;
      },
    });
  }

  /** Waits for ownership, unless it already does. */
  campaign(): void {
    this.sendReady();
    if (this.outdated !== undefined) {
      this.postToPage({ type: "outdated", error: this.outdated });
      return;
    }
    if (this.owner !== undefined) {
      this.announce();
      this.broadcast?.postMessage(this.announcement());
    }
    if (this.candidacy !== undefined) return;
    if (this.fallback !== undefined && this.channel !== undefined) {
      if (this.buildChannel === undefined) this.followOwner(this.channel, this.fallback);
      return;
    }
    const candidacy = new Candidacy();
    this.candidacy = candidacy;
    this.waitForOwnership(candidacy).catch((error) => {
      if (this.candidacy === candidacy) this.candidacy = undefined;
      if (!candidacy.over.aborted) this.postToPage({ type: "failed", error: toWire(error) });
    });
    // After the request for the lock, which takes longer.
    if (this.channel !== undefined) this.exchangeBuilds(this.channel);
  }

  /** Hands over, or gives up the wait for ownership. Resolves when the file is released. */
  async release(): Promise<void> {
    const { candidacy } = this;
    this.buildChannel?.close();
    this.buildChannel = undefined;
    if (this.fallback !== undefined) {
      this.broadcast?.close();
      return this.fallback.close();
    }
    if (candidacy === undefined) return;
    this.candidacy = undefined;
    candidacy.end();
    await candidacy.ended;
  }

  /** Handles a message from a client of this worker's own page. */
  receive(message: ToWorker, respond: Respond): void {
    // Shows that the worker runs, even without an answer.
    if (message.type === "find-owner") this.sendReady();
    if (message.type !== "init" && message.type !== "release" && message.type !== "attach-port") {
      this.answer(message, respond);
    }
  }

  private sendReady(): void {
    const { channel, program } = this;
    const postReady = () => {
      const storing = storingByName(this.hostOptions.collections);
      this.postToPage({ type: "ready", channel, build: this.build.build, storing, program });
    };
    // Not before the page would notice the end of this worker.
    if (this.lifetimeLock === undefined) postReady();
    else this.lifetimeLock.then(postReady);
  }

  /** The engine's code, compiled once: the option `wasm` may be a response, which can be read once only. */
  private loaded(): Promise<WebAssembly.Module> {
    this.module ??= loadModule(this.hostOptions.options.wasm);
    this.module.catch(() => {
      this.module = undefined;
    });
    return this.module;
  }

  private async waitForOwnership(candidacy: Candidacy): Promise<void> {
    try {
      // The engine's code is compiled meanwhile, so that it is ready when the lock is granted, but not before the
      // platform works on the file: decoding the code keeps this thread busy.
      const load = () => this.loaded().catch(() => {});
      const lookup = this.lookup ?? this.storage.lookUp?.(this.name);
      this.lookup = undefined;
      Promise.resolve(lookup).then(load, load);
      if (this.channel === undefined) return await this.becomeOwner(candidacy);
      this.postToPage({ type: "state", state: "waiting" });
      const lock = (locks() as LockManager).request(this.channel, { signal: candidacy.over }, () =>
        this.becomeOwner(candidacy),
      );
      await lock;
    } finally {
      candidacy.finish();
    }
  }

  /** Opens the file and serves it until the candidacy ends. Called with the lock held. */
  private async becomeOwner(candidacy: Candidacy): Promise<void> {
    if (candidacy.over.aborted) return;
    this.postToPage({ type: "state", state: "opening" });
    const db = await this.open(candidacy);
    // The page learns this worker's build before it sends requests.
    await this.lifetimeLock;
    if (candidacy.over.aborted) return db.close();
    const active = new Owner(this.id, db, this.hostOptions, (progress) => this.progress(progress));
    if (!(await this.upgrade(active, candidacy))) return;
    this.owner = active;
    try {
      this.announce();
      if (this.channel !== undefined) {
        // After the announcement to this page: opening the channels takes a moment.
        this.listen(this.channel);
        this.broadcast?.postMessage(this.announcement());
      }
      active.warmUp();
      await candidacy.endRequested;
    } finally {
      this.owner = undefined;
      await active.close().finally(() => this.resign());
    }
  }

  /** Brings the database to this build's version. Returns `false`, and closes it, if a newer build owns it. */
  private async upgrade(active: Owner, candidacy: Candidacy): Promise<boolean> {
    try {
      const { version } = active;
      if (version > this.version) this.becomeOutdated(buildOf(version, {}).build);
      else {
        const onProgress = (progress: MigrateProgress) =>
          this.progress({ doing: "migrating", ...progress });
        await active.upgrade(this.version, { onProgress, signal: candidacy.over });
      }
      if (!candidacy.over.aborted) return true;
    } catch (error) {
      await active.close().catch(() => {});
      throw error;
    }
    await active.close();
    return false;
  }

  private async open(candidacy: Candidacy): Promise<Database> {
    const { options } = this.hostOptions;
    for (let tries = 0; ; tries += 1) {
      try {
        const { storage } = this;
        const onProgress = (progress: OpenProgress) => this.progress(progress);
        const candidateOptions = {
          storage,
          onProgress,
          signal: candidacy.over,
          wasm: this.loaded(),
        };
        const opening = this.channel === undefined ? openRegistered : openLocked;
        return await opening(this.name, { ...options, ...candidateOptions });
      } catch (error) {
        // The previous holder of the lock may have the file for a moment longer.
        const wait = BUSY_MS[tries];
        const busy = (error as { code?: unknown }).code === "VARVE_DATABASE_BUSY";
        if (!busy || wait === undefined || candidacy.over.aborted) throw error;
        this.postToPage({ type: "state", state: "busy" });
        await new Promise((resolve) => setTimeout(resolve, wait));
      }
    }
  }

  /** Reports progress to all pages, and its end, but not every step. */
  private progress(progress: ClientProgress | undefined): void {
    const now = monotonicNow();
    if (progress?.doing === this.postedProgress && now < this.progressPostedAt + PROGRESS_MS)
      return;
    this.progressPostedAt = now;
    this.postedProgress = progress?.doing;
    if (this.owner === undefined) {
      if (progress !== undefined) this.postToPage({ type: "state", state: "opening", progress });
      return;
    }
    this.post({ type: "progress", owner: this.id, progress });
    // Sorting happens within one call: as soon as another task runs, it is over.
    if (progress?.doing === "sorting") setTimeout(() => this.progress(undefined));
  }

  // ---------------------------------------------------------------- other builds

  /** Announces this build to the other candidates for the database, and receives theirs. */
  private exchangeBuilds(channel: string): void {
    const buildChannel = new BroadcastChannel(`${channel}:builds`);
    this.buildChannel = buildChannel;
    buildChannel.onmessage = ({ data }) => {
      const otherBuild = data as BuildHello;
      const order = compareBuilds(this.build.build, otherBuild.build);
      if (order === "same") return;
      this.others.set(otherBuild.build, otherBuild);
      if (order === "newer") this.becomeOutdated(otherBuild.build);
      else if (otherBuild.wantsReply)
        buildChannel.postMessage({ ...this.build, wantsReply: false } satisfies BuildHello);
    };
    buildChannel.postMessage({ ...this.build, wantsReply: true } satisfies BuildHello);
  }

  /** Gives up ownership for good, because another build is newer. */
  private becomeOutdated(otherBuild: string): void {
    if (this.outdated !== undefined) return;
    this.outdated = toWire(versionChanged(this.name, this.build.build, otherBuild));
    this.postToPage({ type: "outdated", error: this.outdated });
    this.release();
  }

  /** Compares the page's version with this worker's, whose file may be of another build. */
  checkPageVersion(version: number | undefined): void {
    if (version === undefined || version === this.version) return;
    this.becomeOutdated(buildOf(Math.max(version, this.version), {}).build);
  }

  /**
   * Why a client of another build is refused; `false` if its build is newer and this owner has to hand over.
   */
  private refusalFor(otherBuild: string): WireError | false | undefined {
    const { build, others, name } = this;
    switch (compareBuilds(build.build, otherBuild)) {
      case "same":
        return undefined;
      case "newer":
        return false;
      case "older":
        return toWire(versionChanged(name, otherBuild, build.build));
      default:
        return toWire(schemasDiffer(name, build, others.get(otherBuild)));
    }
  }

  // ---------------------------------------------------------------- clients

  /** Takes a port from a client in another realm, over which answers are faster. */
  attachPort(port: MessagePort): void {
    if (this.owner === undefined) {
      port.close();
      return;
    }
    this.ports.push(port);
    port.onmessage = ({ data }) =>
      this.answer(data as ToOwner, (reply) => port.postMessage(reply, buffersOf(reply)));
    port.postMessage(this.announcement());
  }

  private listen(channel: string): void {
    const broadcast = new BroadcastChannel(channel);
    this.broadcast = broadcast;
    const inbox = new BroadcastChannel(`${channel}:${this.id}`);
    let arePortsWanted = false;
    const onMessage = ({ data }: MessageEvent) => {
      const message = data as ToOwner | ToClient;
      // Other owners also post to this channel.
      if (!("client" in message) || message.type === "owner") return;
      if (!arePortsWanted) this.postToPage({ type: "ports-wanted" });
      arePortsWanted = true;
      this.answer(message, (reply) => this.inbox(channel, message.client).postMessage(reply));
    };
    broadcast.onmessage = onMessage;
    inbox.onmessage = onMessage;
    this.inboxes.set(0, inbox);
  }

  private inbox(channel: string, client: number): BroadcastChannel {
    const known = this.inboxes.get(client);
    if (known !== undefined) return known;
    const inbox = new BroadcastChannel(`${channel}:${client}`);
    this.inboxes.set(client, inbox);
    return inbox;
  }

  private announcement(): OwnerAnnouncement {
    return { type: "owner", owner: this.id, client: 0, round: 0, at: ownerNow() };
  }

  /** Announces this owner to its own page. */
  private announce(): void {
    this.postToPage({ ...this.announcement(), sentAt: originTime() });
  }

  /** Reports that this owner has handed over, and closes its channels. */
  private resign(): void {
    this.post({ type: "resigned", owner: this.id });
    this.broadcast?.close();
    this.broadcast = undefined;
    for (const inbox of this.inboxes.values()) inbox.close();
    this.inboxes.clear();
    for (const port of this.ports.splice(0)) port.close();
  }

  /** Posts a message to the page and to clients in other realms. */
  private post(message: ToClient): void {
    this.postToPage(message);
    this.broadcast?.postMessage(message);
  }

  private answer(message: ToOwner, respond: Respond): void {
    const owner = this.id;
    const { owner: active, fallback } = this;
    if (fallback !== undefined) {
      if (this.outdated === undefined) fallback.receive(message, respond);
      return;
    }
    if (active === undefined || active.isLost) {
      if (message.type === "requests" || message.type === "watch")
        respond({ type: "resigned", owner });
      if (active !== undefined) this.renew();
      return;
    }
    const { client } = message;
    if (message.type === "find-owner") {
      respond({ type: "owner", owner, client, round: message.round, at: ownerNow() });
    }
    if (message.type === "watch") {
      // Values are only for clients of the same build, as are requests.
      const refusal = message.rows && this.refusalFor(message.build);
      if (refusal === false) this.becomeOutdated(message.build);
      else active.watch(message, respond, refusal);
    }
    if (message.type === "unwatch") active.watches.remove(message);
    if (message.type === "cancel") active.work.stop(client, message.id);
    if (message.type !== "requests") return;
    const refusal = this.refusalFor(message.build);
    if (refusal === false) {
      this.becomeOutdated(message.build);
      return;
    }
    if (refusal === undefined && message.requests.some(isJob)) {
      this.work(active, message, respond);
      return;
    }
    const ids = message.requests.filter(({ hangCount }) => hangCount === 1).map(({ id }) => id);
    if (ids.length > 0) this.postToPage({ type: "retried-hung", client, ids });
    active.handle(message, refusal, ({ answers, resend, failure }) => {
      if (answers.length > 0)
        respondSafely(answers, (part) =>
          respond({ type: "responses", owner, answers: part, at: ownerNow() }),
        );
      if (resend) respond({ type: "resend", owner });
      if (isPoison(failure) || answers.some(isPoisoned)) this.renew();
    });
  }

  /** Does the requests of a message in their order, since some of them are jobs. */
  private work(active: Owner, batch: RequestBatch, respond: Respond): void {
    const owner = this.id;
    let between: Request[] = [];
    const doBetween = () => {
      const requests = between;
      between = [];
      if (requests.length > 0) this.answer({ ...batch, requests }, respond);
    };
    for (const request of batch.requests) {
      if (!isJob(request)) {
        between.push(request);
        continue;
      }
      doBetween();
      active.work.do(batch.client, request, (outcome) =>
        respond({
          type: "responses",
          owner,
          answers: [{ id: request.id, outcome }],
          at: ownerNow(),
        }),
      );
    }
    doBetween();
  }

  /** Releases a database that was poisoned or closed, and opens it again. The file itself is intact. */
  private renew(): void {
    const { candidacy } = this;
    if (candidacy === undefined) return;
    this.release().then(() => {
      if (this.candidacy === undefined) this.campaign();
    });
  }
}

/** Whether this realm can read files but not synchronously: a service worker, or a page. */
function onlyReads(): boolean {
  return hasFolders() && !hasOpfs() && !("DedicatedWorkerGlobalScope" in globalThis);
}

/** Responds with the answers. An answer that cannot be cloned, such as a too deeply nested one, is replaced. */
function respondSafely(
  answers: readonly Answer[],
  respond: (answers: readonly Answer[]) => void,
): void {
  try {
    respond(answers);
    return;
  } catch {
    // At least one answer cannot be cloned: they are sent one by one.
  }
  for (const answer of answers) {
    try {
      respond([answer]);
    } catch {
      respond([{ id: answer.id, outcome: withoutData(answer.outcome) }]);
    }
  }
}

/** The outcome without values of the program. */
function withoutData(outcome: Outcome): Outcome {
  if (!("error" in outcome)) return { forgotten: true };
  const { name, message, code } = outcome.error;
  return { error: { name, message, code } };
}

function isPoisoned({ outcome }: Answer): boolean {
  return "error" in outcome && isPoison(outcome.error);
}

function isPoison(error: WireError | undefined): boolean {
  return error?.code === "VARVE_DATABASE_POISONED";
}

function locks(): LockManager | undefined {
  return (globalThis.navigator as Partial<Navigator> | undefined)?.locks;
}

/** One wait for ownership and the ownership that follows. */
class Candidacy {
  readonly endRequested: Promise<void>;
  readonly ended: Promise<void>;
  readonly over: AbortSignal;
  finish: () => void = () => {};
  end: () => void = () => {};

  constructor() {
    const controller = new AbortController();
    this.over = controller.signal;
    this.endRequested = new Promise((resolve) => {
      this.end = () => {
        controller.abort();
        resolve();
      };
    });
    this.ended = new Promise((resolve) => {
      this.finish = resolve;
    });
  }
}
