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
import { programHere } from "../connection/port-relay.js";
import {
  channelName,
  type FromHost,
  type Program,
  type ToHost,
} from "../connection/worker-messages.js";
import { toWire } from "../protocol/errors.js";
import {
  type Answer,
  type Ask,
  type ClientProgress,
  type Outcome,
  standingOf,
  type ToClient,
  type ToOwner,
  type WireError,
} from "../protocol/messages.js";
import { type Build, buildOf, schemasDiffer, versionChanged } from "./app-version.js";
import { jsonNames } from "./collection-handlers.js";
import { isWork } from "./jobs.js";
import { type Hosting, Owned, ownerNow, type Respond } from "./leader.js";
import { Reader } from "./read-only-fallback.js";

/** How long to wait for a file whose last owner is about to let it go, from the first time to the last. */
const BUSY_MS = [50, 50, 100, 200, 400, 800];

/** Between two reports of how far opening has come. */
const PROGRESS_MS = 50;

/** What hosts say to each other: which build each is. */
interface Greeting extends Build {
  /** Whether those who are another build are to say so. */
  readonly asks: boolean;
}

/** A candidate for the ownership of one database. */
export class Host {
  private readonly name: string;
  private readonly hosting: Hosting;
  private readonly storage: Storage;
  private readonly tell: (message: FromHost) => void;
  private readonly id: string;
  /** Where clients in other realms ask; none where there are none. */
  private readonly channel: string | undefined;
  private readonly life: Promise<void> | undefined;
  private readonly program: Program | undefined;
  private broadcast: BroadcastChannel | undefined;
  /** Gives up the wait for ownership, or the ownership itself. */
  private turn: Turn | undefined;
  private owned: Owned | undefined;
  private readonly inboxes: Map<number, BroadcastChannel>;
  private readonly ports: MessagePort[];
  private toldProgress: number;
  /** What it was at when it told that last. */
  private doing: ClientProgress["doing"] | undefined;
  private readonly version: number;
  private readonly build: Build;
  /** Other builds that were heard of, by their names. */
  private readonly others: Map<string, Build>;
  /** In the place of an owner, where there can be none. */
  private readonly reader: Reader | undefined;
  private module: Promise<WebAssembly.Module> | undefined;
  private greetings: BroadcastChannel | undefined;
  /** Why it does not stand for ownership any more. */
  private outdated: WireError | undefined;

  constructor(
    name: string,
    hosting: Hosting,
    version: number | undefined,
    tell: (message: FromHost) => void,
    isWorker: boolean,
  ) {
    this.name = name;
    this.hosting = hosting;
    this.storage = hosting.options.storage ?? (onlyReads() ? opfs() : defaultStorage());
    this.tell = tell;
    this.id = crypto.randomUUID();
    this.inboxes = new Map();
    this.ports = [];
    this.toldProgress = -PROGRESS_MS;
    this.version = hosting.version ?? version ?? 0;
    this.build = buildOf(this.version, hosting.collections);
    this.others = new Map();
    this.channel =
      this.storage.kind === "opfs" && locks() !== undefined
        ? channelName(this.storage.identity(name))
        : undefined;
    this.program = isWorker ? programHere() : undefined;
    this.life = isWorker && this.channel !== undefined ? this.live() : undefined;
    this.reader =
      this.channel !== undefined && onlyReads() ? this.readerOf(this.channel) : undefined;
  }

  /** Has its page hear at once if this worker ends, for whatever reason. Resolves when it will. */
  private live(): Promise<void> {
    const lock = `varve:worker:${this.id}`;
    return new Promise((resolve) => {
      const hold = () => {
        this.tell({ type: "alive", lock });
        resolve();
        return new Promise<never>(() => {});
      };
      // Without it the page asks, sooner or later.
      locks()?.request(lock, hold).catch(resolve);
    });
  }

  /** Looks who owns the database, which this realm cannot. */
  private follow(channel: string, reader: Reader): void {
    this.greet(channel);
    this.broadcast = new BroadcastChannel(channel);
    this.broadcast.onmessage = ({ data }) => {
      const { type } = data as ToClient;
      if (type === "here" || type === "gone") reader.doubt();
      if (type === "gone") reader.offer((message) => this.tell(message));
    };
  }

  private readerOf(lock: string): Reader {
    const { id, name, storage, hosting } = this;
    return new Reader({
      id,
      name,
      storage,
      hosting,
      lock,
      module: () => this.loaded(),
      refusalFor: (build) => this.refusalFor(build),
      isLate: (version) => {
        if (version > this.version) this.stepAside(buildOf(version, {}).build);
        return version > this.version;
      },
    });
  }

  /** Stands for ownership, if it does not already. */
  begin(): void {
    this.rise();
    if (this.outdated !== undefined) {
      this.tell({ type: "outdated", error: this.outdated });
      return;
    }
    if (this.owned !== undefined) this.announce();
    if (this.turn !== undefined) return;
    if (this.reader !== undefined && this.channel !== undefined) {
      if (this.greetings === undefined) this.follow(this.channel, this.reader);
      return;
    }
    const turn = new Turn();
    this.turn = turn;
    if (this.channel !== undefined) this.greet(this.channel);
    this.stand(turn).catch((error) => {
      if (this.turn === turn) this.turn = undefined;
      if (!turn.over.aborted) this.tell({ type: "failed", error: toWire(error) });
    });
  }

  /** Hands over, or stands for ownership no more. Resolves when the file is free. */
  async release(): Promise<void> {
    const { turn } = this;
    this.greetings?.close();
    this.greetings = undefined;
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
  hear(message: ToHost, respond: Respond): void {
    // That it is there, if nothing else.
    if (message.type === "who") this.rise();
    if (message.type !== "hello" && message.type !== "release" && message.type !== "visit") {
      this.answer(message, respond);
    }
  }

  private rise(): void {
    const { channel, program } = this;
    const up = () => {
      const json = jsonNames(this.hosting.collections);
      this.tell({ type: "up", channel, build: this.build.build, json, program });
    };
    // Not before its page would hear of its end.
    if (this.life === undefined) up();
    else this.life.then(up);
  }

  /** The engine's code. What the program has given for it may be a response, which is read once. */
  private loaded(): Promise<WebAssembly.Module> {
    this.module ??= loadModule(this.hosting.options.wasm);
    this.module.catch(() => {
      this.module = undefined;
    });
    return this.module;
  }

  private async stand(turn: Turn): Promise<void> {
    try {
      // Meanwhile the engine's code is got ready, for the time when nobody has the file.
      this.loaded().catch(() => {});
      if (this.channel === undefined) return await this.own(turn);
      this.tell({ type: "state", state: "waiting" });
      const lock = (locks() as LockManager).request(this.channel, { signal: turn.over }, () =>
        this.own(turn),
      );
      await lock;
    } finally {
      turn.finish();
    }
  }

  /** Has the turn: opens the file, and keeps it until it is told to let it go. */
  private async own(turn: Turn): Promise<void> {
    if (turn.over.aborted) return;
    this.tell({ type: "state", state: "opening" });
    const db = await this.open(turn);
    // Its page learns which build this is before it asks for anything.
    await this.life;
    if (turn.over.aborted) return db.close();
    const owned = new Owned(this.id, db, this.hosting, (progress) => this.progress(progress));
    if (!(await this.admit(owned, turn))) return;
    this.owned = owned;
    try {
      if (this.channel !== undefined) this.listen(this.channel);
      this.announce();
      await turn.told;
    } finally {
      this.owned = undefined;
      await owned.close().finally(() => this.bow());
    }
  }

  /** Whether this build may have the database, which it brings to its version then. Else it is closed. */
  private async admit(owned: Owned, turn: Turn): Promise<boolean> {
    try {
      const { version } = owned;
      if (version > this.version) this.stepAside(buildOf(version, {}).build);
      else {
        const onProgress = (progress: MigrateProgress) =>
          this.progress({ doing: "migrating", ...progress });
        await owned.upgrade(this.version, { onProgress, signal: turn.over });
      }
      if (!turn.over.aborted) return true;
    } catch (error) {
      await owned.close().catch(() => {});
      throw error;
    }
    await owned.close();
    return false;
  }

  private async open(turn: Turn): Promise<Database> {
    const { options } = this.hosting;
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
        this.tell({ type: "state", state: "busy" });
        await new Promise((resolve) => setTimeout(resolve, wait));
      }
    }
  }

  /** Tells all pages of what takes long, and that it is over, though not of every step. */
  private progress(progress: ClientProgress | undefined): void {
    const now = monotonicNow();
    if (progress?.doing === this.doing && now < this.toldProgress + PROGRESS_MS) return;
    this.toldProgress = now;
    this.doing = progress?.doing;
    if (this.owned === undefined) {
      if (progress !== undefined) this.tell({ type: "state", state: "opening", progress });
      return;
    }
    this.post({ type: "progress", owner: this.id, progress });
    // Sorting is done within a call. When anything else runs in this realm, it is over.
    if (progress?.doing === "sorting") setTimeout(() => this.progress(undefined));
  }

  // ---------------------------------------------------------------- other builds

  /** Says to all hosts of the database which build this is, and hears which they are. */
  private greet(channel: string): void {
    const greetings = new BroadcastChannel(`${channel}:builds`);
    this.greetings = greetings;
    greetings.onmessage = ({ data }) => {
      const theirs = data as Greeting;
      const standing = standingOf(this.build.build, theirs.build);
      if (standing === "same") return;
      this.others.set(theirs.build, theirs);
      if (standing === "newer") this.stepAside(theirs.build);
      else if (theirs.asks) greetings.postMessage({ ...this.build, asks: false });
    };
    greetings.postMessage({ ...this.build, asks: true });
  }

  /** Another build is newer: it is to have the database, and this one not again. */
  private stepAside(theirs: string): void {
    if (this.outdated !== undefined) return;
    this.outdated = toWire(versionChanged(this.name, this.build.build, theirs));
    this.tell({ type: "outdated", error: this.outdated });
    this.release();
  }

  /** The page is of the build that it names. The worker's file may be another one's. */
  serves(version: number | undefined): void {
    if (version === undefined || version === this.version) return;
    this.stepAside(buildOf(Math.max(version, this.version), {}).build);
  }

  /** Why a client of another build is refused; `false` if it is newer, and this owner goes. */
  private refusalFor(theirs: string): WireError | false | undefined {
    const { build, others, name } = this;
    switch (standingOf(build.build, theirs)) {
      case "same":
        return undefined;
      case "newer":
        return false;
      case "older":
        return toWire(versionChanged(name, theirs, build.build));
      default:
        return toWire(schemasDiffer(name, build, others.get(theirs)));
    }
  }

  // ---------------------------------------------------------------- clients

  /** A client elsewhere has sent a port, by which it is answered faster. */
  visit(port: MessagePort): void {
    if (this.owned === undefined) {
      port.close();
      return;
    }
    this.ports.push(port);
    port.onmessage = ({ data }) => this.answer(data as ToOwner, (reply) => port.postMessage(reply));
    port.postMessage({ type: "here", owner: this.id, client: 0, round: 0, at: ownerNow() });
  }

  private listen(channel: string): void {
    const broadcast = new BroadcastChannel(channel);
    this.broadcast = broadcast;
    const mine = new BroadcastChannel(`${channel}:${this.id}`);
    let isVisited = false;
    const hear = ({ data }: MessageEvent) => {
      const message = data as ToOwner | ToClient;
      // Other owners speak here too.
      if (!("client" in message) || message.type === "here") return;
      if (!isVisited) this.tell({ type: "visited" });
      isVisited = true;
      this.answer(message, (reply) => this.inbox(channel, message.client).postMessage(reply));
    };
    broadcast.onmessage = hear;
    mine.onmessage = hear;
    this.inboxes.set(0, mine);
  }

  private inbox(channel: string, client: number): BroadcastChannel {
    const known = this.inboxes.get(client);
    if (known !== undefined) return known;
    const inbox = new BroadcastChannel(`${channel}:${client}`);
    this.inboxes.set(client, inbox);
    return inbox;
  }

  private announce(): void {
    this.post({ type: "here", owner: this.id, client: 0, round: 0, at: ownerNow() });
  }

  /** Another one may be owner now. */
  private bow(): void {
    this.post({ type: "gone", owner: this.id });
    this.broadcast?.close();
    this.broadcast = undefined;
    for (const inbox of this.inboxes.values()) inbox.close();
    this.inboxes.clear();
    for (const port of this.ports.splice(0)) port.close();
  }

  /** To all that there are. */
  private post(message: ToClient): void {
    this.tell(message);
    this.broadcast?.postMessage(message);
  }

  private answer(message: ToOwner, respond: Respond): void {
    const owner = this.id;
    const { owned, reader } = this;
    if (reader !== undefined) {
      if (this.outdated === undefined) reader.hear(message, respond);
      return;
    }
    if (owned === undefined || owned.isLost) {
      if (message.type === "ask" || message.type === "watch") respond({ type: "gone", owner });
      if (owned !== undefined) this.renew();
      return;
    }
    const { client } = message;
    if (message.type === "who") {
      respond({ type: "here", owner, client, round: message.round, at: ownerNow() });
    }
    if (message.type === "watch") owned.watch(message, respond);
    if (message.type === "unwatch") owned.watches.remove(message);
    if (message.type === "stop") owned.work.stop(client, message.id);
    if (message.type !== "ask") return;
    const refusal = this.refusalFor(message.build);
    if (refusal === false) {
      this.stepAside(message.build);
      return;
    }
    if (refusal === undefined && message.requests.some(isWork)) {
      this.work(owned, message, respond);
      return;
    }
    const ids = message.requests.filter(({ hangs }) => hangs === 1).map(({ id }) => id);
    if (ids.length > 0) this.tell({ type: "doing", client, ids });
    owned.handle(message, refusal, ({ answers, again, failure }) => {
      if (answers.length > 0)
        tell(answers, (some) => respond({ type: "told", owner, answers: some, at: ownerNow() }));
      if (again) respond({ type: "again", owner });
      if (isPoison(failure) || answers.some(isPoisoned)) this.renew();
    });
  }

  /** Does the rest of a message first, for it may be what is to be exported. */
  private work(owned: Owned, ask: Ask, respond: Respond): void {
    const owner = this.id;
    const rest = ask.requests.filter((request) => !isWork(request));
    if (rest.length > 0) this.answer({ ...ask, requests: rest }, respond);
    for (const request of ask.requests.filter(isWork)) {
      owned.work.do(ask.client, request, (outcome) =>
        respond({ type: "told", owner, answers: [{ id: request.id, outcome }], at: ownerNow() }),
      );
    }
  }

  /** What is open here refuses to go on. Whoever opens the file anew finds it intact. */
  private renew(): void {
    const { turn } = this;
    if (turn === undefined) return;
    this.release().then(() => {
      if (this.turn === undefined) this.begin();
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
