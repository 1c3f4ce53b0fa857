/**
 * A worker that may own the database: it waits for its turn, opens the file, answers clients in this
 * realm's page and in others, and hands over when it is told to.
 */

import type { MigrateProgress } from "../../collection/migrate.js";
import type { Database } from "../../database/database.js";
import { open } from "../../database/open.js";
import { defaultStorage } from "../../database/storage-admin.js";
import { loadModule } from "../../engine/load-wasm.js";
import type { OpenProgress } from "../../session/options.js";
import { hasFolders, hasOpfs, opfs } from "../../storage/opfs.js";
import type { Storage } from "../../storage/storage.js";
import { monotonicNow, setTimeout } from "../../util/clock.js";
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
  type RequestBatch,
  type ToClient,
  type ToOwner,
  type WireError,
} from "../protocol/messages.js";
import { type Build, buildOf, schemasDiffer, versionChanged } from "./app-version.js";
import { jsonNames } from "./collection-handlers.js";
import { isJob } from "./jobs.js";
import { type HostOptions, Owner, ownerNow, type Respond } from "./owner.js";
import { Reader } from "./read-only-fallback.js";

/** How long to wait for a file whose last owner is about to let it go, from the first time to the last. */
const BUSY_MS = [50, 50, 100, 200, 400, 800];

/** Between two reports of how far opening has come. */
const PROGRESS_MS = 50;

/** What hosts say to each other: which build each is. */
interface BuildHello extends Build {
  /** Whether those who are another build are to say so. */
  readonly wantsReply: boolean;
}

/** A candidate for the ownership of one database. */
export class OwnerCandidate {
  private readonly name: string;
  private readonly hostOptions: HostOptions;
  private readonly storage: Storage;
  private readonly postToPage: (message: FromWorker) => void;
  private readonly id: string;
  /** Where clients in other realms ask; none where there are none. */
  private readonly channel: string | undefined;
  private readonly lifetimeLock: Promise<void> | undefined;
  private readonly program: Program | undefined;
  private broadcast: BroadcastChannel | undefined;
  /** Gives up the wait for ownership, or the ownership itself. */
  private turn: Turn | undefined;
  private owner: Owner | undefined;
  private readonly inboxes: Map<number, BroadcastChannel>;
  private readonly ports: MessagePort[];
  private progressPostedAt: number;
  /** What it was at when it told that last. */
  private postedProgress: ClientProgress["doing"] | undefined;
  private readonly version: number;
  private readonly build: Build;
  /** Other builds that were heard of, by their names. */
  private readonly others: Map<string, Build>;
  /** In the place of an owner, where there can be none. */
  private readonly reader: Reader | undefined;
  private module: Promise<WebAssembly.Module> | undefined;
  private buildChannel: BroadcastChannel | undefined;
  /** Why it does not stand for ownership any more. */
  private outdated: WireError | undefined;

  constructor(
    name: string,
    hostOptions: HostOptions,
    version: number | undefined,
    tell: (message: FromWorker) => void,
    isWorker: boolean,
  ) {
    this.name = name;
    this.hostOptions = hostOptions;
    this.storage = hostOptions.options.storage ?? (onlyReads() ? opfs() : defaultStorage());
    this.postToPage = tell;
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
    this.reader =
      this.channel !== undefined && onlyReads() ? this.readerOf(this.channel) : undefined;
  }

  /** Has its page hear at once if this worker ends, for whatever reason. Resolves when it will. */
  private holdLifetimeLock(): Promise<void> {
    const lock = `varve:worker:${this.id}`;
    return new Promise((resolve) => {
      const hold = () => {
        this.postToPage({ type: "lifetime-lock", lock });
        resolve();
        return new Promise<never>(() => {});
      };
      // Without it the page asks, sooner or later.
      locks()?.request(lock, hold).catch(resolve);
    });
  }

  /** Looks who owns the database, which this realm cannot. */
  private followOwner(channel: string, reader: Reader): void {
    this.exchangeBuilds(channel);
    this.broadcast = new BroadcastChannel(channel);
    this.broadcast.onmessage = ({ data }) => {
      const { type } = data as ToClient;
      if (type === "owner" || type === "resigned") reader.doubt();
      if (type === "resigned") reader.offer((message) => this.postToPage(message));
    };
  }

  private readerOf(lock: string): Reader {
    const { id, name, storage, hostOptions } = this;
    return new Reader({
      id,
      name,
      storage,
      hostOptions: hostOptions,
      lock,
      module: () => this.loaded(),
      refusalFor: (build) => this.refusalFor(build),
      isLate: (version) => {
        if (version > this.version) this.becomeOutdated(buildOf(version, {}).build);
        return version > this.version;
      },
    });
  }

  /** Stands for ownership, if it does not already. */
  campaign(): void {
    this.sendReady();
    if (this.outdated !== undefined) {
      this.postToPage({ type: "outdated", error: this.outdated });
      return;
    }
    if (this.owner !== undefined) this.announce();
    if (this.turn !== undefined) return;
    if (this.reader !== undefined && this.channel !== undefined) {
      if (this.buildChannel === undefined) this.followOwner(this.channel, this.reader);
      return;
    }
    const turn = new Turn();
    this.turn = turn;
    if (this.channel !== undefined) this.exchangeBuilds(this.channel);
    this.waitForTurn(turn).catch((error) => {
      if (this.turn === turn) this.turn = undefined;
      if (!turn.over.aborted) this.postToPage({ type: "failed", error: toWire(error) });
    });
  }

  /** Hands over, or stands for ownership no more. Resolves when the file is free. */
  async release(): Promise<void> {
    const { turn } = this;
    this.buildChannel?.close();
    this.buildChannel = undefined;
    if (this.reader !== undefined) {
      this.broadcast?.close();
      return this.reader.close();
    }
    if (turn === undefined) return;
    this.turn = undefined;
    turn.end();
    await turn.ended;
  }

  /** A client of this worker's own page asks. */
  receive(message: ToWorker, respond: Respond): void {
    // That it is there, if nothing else.
    if (message.type === "find-owner") this.sendReady();
    if (message.type !== "init" && message.type !== "release" && message.type !== "attach-port") {
      this.answer(message, respond);
    }
  }

  private sendReady(): void {
    const { channel, program } = this;
    const postReady = () => {
      const json = jsonNames(this.hostOptions.collections);
      this.postToPage({ type: "ready", channel, build: this.build.build, json, program });
    };
    // Not before its page would hear of its end.
    if (this.lifetimeLock === undefined) postReady();
    else this.lifetimeLock.then(postReady);
  }

  /** The engine's code. What the program has given for it may be a response, which is read once. */
  private loaded(): Promise<WebAssembly.Module> {
    this.module ??= loadModule(this.hostOptions.options.wasm);
    this.module.catch(() => {
      this.module = undefined;
    });
    return this.module;
  }

  private async waitForTurn(turn: Turn): Promise<void> {
    try {
      // Meanwhile the engine's code is got ready, for the time when nobody has the file.
      this.loaded().catch(() => {});
      if (this.channel === undefined) return await this.becomeOwner(turn);
      this.postToPage({ type: "state", state: "waiting" });
      const lock = (locks() as LockManager).request(this.channel, { signal: turn.over }, () =>
        this.becomeOwner(turn),
      );
      await lock;
    } finally {
      turn.finish();
    }
  }

  /** Has the turn: opens the file, and keeps it until it is told to let it go. */
  private async becomeOwner(turn: Turn): Promise<void> {
    if (turn.over.aborted) return;
    this.postToPage({ type: "state", state: "opening" });
    const db = await this.open(turn);
    // Its page learns which build this is before it asks for anything.
    await this.lifetimeLock;
    if (turn.over.aborted) return db.close();
    const active = new Owner(this.id, db, this.hostOptions, (progress) => this.progress(progress));
    if (!(await this.upgrade(active, turn))) return;
    this.owner = active;
    try {
      if (this.channel !== undefined) this.listen(this.channel);
      this.announce();
      await turn.told;
    } finally {
      this.owner = undefined;
      await active.close().finally(() => this.resign());
    }
  }

  /** Whether this build may have the database, which it brings to its version then. Else it is closed. */
  private async upgrade(active: Owner, turn: Turn): Promise<boolean> {
    try {
      const { version } = active;
      if (version > this.version) this.becomeOutdated(buildOf(version, {}).build);
      else {
        const onProgress = (progress: MigrateProgress) =>
          this.progress({ doing: "migrating", ...progress });
        await active.upgrade(this.version, { onProgress, signal: turn.over });
      }
      if (!turn.over.aborted) return true;
    } catch (error) {
      await active.close().catch(() => {});
      throw error;
    }
    await active.close();
    return false;
  }

  private async open(turn: Turn): Promise<Database> {
    const { options } = this.hostOptions;
    for (let tries = 0; ; tries += 1) {
      try {
        const { storage } = this;
        const onProgress = (progress: OpenProgress) => this.progress(progress);
        const more = { storage, onProgress, signal: turn.over, wasm: this.loaded() };
        return await open(this.name, { ...options, ...more });
      } catch (error) {
        // Whoever had the lock may still have the file for a moment.
        const wait = BUSY_MS[tries];
        const busy = (error as { code?: unknown }).code === "VARVE_DATABASE_BUSY";
        if (!busy || wait === undefined || turn.over.aborted) throw error;
        this.postToPage({ type: "state", state: "busy" });
        await new Promise((resolve) => setTimeout(resolve, wait));
      }
    }
  }

  /** Tells all pages of what takes long, and that it is over, though not of every step. */
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
    // Sorting is done within a call. When anything else runs in this realm, it is over.
    if (progress?.doing === "sorting") setTimeout(() => this.progress(undefined));
  }

  // ---------------------------------------------------------------- other builds

  /** Says to all hosts of the database which build this is, and hears which they are. */
  private exchangeBuilds(channel: string): void {
    const buildChannel = new BroadcastChannel(`${channel}:builds`);
    this.buildChannel = buildChannel;
    buildChannel.onmessage = ({ data }) => {
      const otherBuild = data as BuildHello;
      const standing = compareBuilds(this.build.build, otherBuild.build);
      if (standing === "same") return;
      this.others.set(otherBuild.build, otherBuild);
      if (standing === "newer") this.becomeOutdated(otherBuild.build);
      else if (otherBuild.wantsReply) buildChannel.postMessage({ ...this.build, asks: false });
    };
    buildChannel.postMessage({ ...this.build, asks: true });
  }

  /** Another build is newer: it is to have the database, and this one not again. */
  private becomeOutdated(otherBuild: string): void {
    if (this.outdated !== undefined) return;
    this.outdated = toWire(versionChanged(this.name, this.build.build, otherBuild));
    this.postToPage({ type: "outdated", error: this.outdated });
    this.release();
  }

  /** The page is of the build that it names. The worker's file may be another one's. */
  checkPageVersion(version: number | undefined): void {
    if (version === undefined || version === this.version) return;
    this.becomeOutdated(buildOf(Math.max(version, this.version), {}).build);
  }

  /** Why a client of another build is refused; `false` if it is newer, and this owner goes. */
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

  /** A client elsewhere has sent a port, by which it is answered faster. */
  attachPort(port: MessagePort): void {
    if (this.owner === undefined) {
      port.close();
      return;
    }
    this.ports.push(port);
    port.onmessage = ({ data }) => this.answer(data as ToOwner, (reply) => port.postMessage(reply));
    port.postMessage({ type: "owner", owner: this.id, client: 0, round: 0, at: ownerNow() });
  }

  private listen(channel: string): void {
    const broadcast = new BroadcastChannel(channel);
    this.broadcast = broadcast;
    const inbox = new BroadcastChannel(`${channel}:${this.id}`);
    let arePortsWanted = false;
    const onMessage = ({ data }: MessageEvent) => {
      const message = data as ToOwner | ToClient;
      // Other owners speak here too.
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

  private announce(): void {
    this.post({ type: "owner", owner: this.id, client: 0, round: 0, at: ownerNow() });
  }

  /** Another one may be owner now. */
  private resign(): void {
    this.post({ type: "resigned", owner: this.id });
    this.broadcast?.close();
    this.broadcast = undefined;
    for (const inbox of this.inboxes.values()) inbox.close();
    this.inboxes.clear();
    for (const port of this.ports.splice(0)) port.close();
  }

  /** To all that there are. */
  private post(message: ToClient): void {
    this.postToPage(message);
    this.broadcast?.postMessage(message);
  }

  private answer(message: ToOwner, respond: Respond): void {
    const owner = this.id;
    const { owner: active, reader } = this;
    if (reader !== undefined) {
      if (this.outdated === undefined) reader.hear(message, respond);
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
    if (message.type === "watch") active.watch(message, respond);
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
    const ids = message.requests.filter(({ hangCount: hangs }) => hangs === 1).map(({ id }) => id);
    if (ids.length > 0) this.postToPage({ type: "retried-hung", client, ids });
    active.handle(message, refusal, ({ answers, again, failure }) => {
      if (answers.length > 0)
        tell(answers, (some) =>
          respond({ type: "responses", owner, answers: some, at: ownerNow() }),
        );
      if (again) respond({ type: "resend", owner });
      if (isPoison(failure) || answers.some(isPoisoned)) this.renew();
    });
  }

  /** Does the rest of a message first, for it may be what is to be exported. */
  private work(active: Owner, batch: RequestBatch, respond: Respond): void {
    const owner = this.id;
    const rest = batch.requests.filter((request) => !isJob(request));
    if (rest.length > 0) this.answer({ ...batch, requests: rest }, respond);
    for (const request of batch.requests.filter(isJob)) {
      active.work.do(batch.client, request, (outcome) =>
        respond({
          type: "responses",
          owner,
          answers: [{ id: request.id, outcome }],
          at: ownerNow(),
        }),
      );
    }
  }

  /** What is open here refuses to go on. Whoever opens the file anew finds it intact. */
  private renew(): void {
    const { turn } = this;
    if (turn === undefined) return;
    this.release().then(() => {
      if (this.turn === undefined) this.campaign();
    });
  }
}

/** Whether this realm has files that it can read, and never synchronous ones: a service worker, a page. */
function onlyReads(): boolean {
  return hasFolders() && !hasOpfs() && !("DedicatedWorkerGlobalScope" in globalThis);
}

/** What no message can carry, as an answer that is nested too deep, keeps back no other answer. */
function tell(answers: readonly Answer[], respond: (answers: readonly Answer[]) => void): void {
  try {
    respond(answers);
    return;
  } catch {
    // It is one of them, or several.
  }
  for (const answer of answers) {
    try {
      respond([answer]);
    } catch {
      respond([{ id: answer.id, outcome: bare(answer.outcome) }]);
    }
  }
}

/** The same with nothing of the program's own. */
function bare(outcome: Outcome): Outcome {
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

/** One wait for ownership and what comes of it. */
class Turn {
  readonly told: Promise<void>;
  readonly ended: Promise<void>;
  readonly over: AbortSignal;
  finish: () => void = () => {};
  end: () => void = () => {};

  constructor() {
    const controller = new AbortController();
    this.over = controller.signal;
    this.told = new Promise((resolve) => {
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
