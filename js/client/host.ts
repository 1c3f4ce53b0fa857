/**
 * A worker that may own the database: it waits for its turn, opens the file, answers clients in this
 * realm's page and in others, and hands over when it is told to.
 */

import type { Database } from "../database.js";
import { open } from "../open.js";
import type { OpenOptions, OpenProgress } from "../options.js";
import { defaultStorage } from "../places.js";
import type { Storage } from "../storage/contract.js";
import { loadModule } from "../wasm/load.js";
import { DatabaseJournal } from "./journal.js";
import { Ledger, type Reply } from "./ledger.js";
import { channelName, type FromHost, type ToHost } from "./local.js";
import type { Answer, Ask, ToClient, ToOwner, Watch, WireError } from "./messages.js";
import { PROTOCOL } from "./messages.js";
import type { Procedures } from "./operations.js";
import { type CollectionSpecs, ServedCollections } from "./served.js";
import { Watches } from "./watches.js";
import { toWire } from "./wire-errors.js";

/** Between two looks for clients that can ask for nothing any more. */
const SWEEP_MS = 60_000;

/** How long to wait for a file whose last owner is about to let it go, from the first time to the last. */
const BUSY_MS = [50, 50, 100, 200, 400, 800];

/** Between two reports of how far opening has come. */
const PROGRESS_MS = 50;

/** Whom an owner answers, and how. */
export type Respond = (message: ToClient) => void;

/** What a host opens and what it does there. */
export interface Hosting {
  readonly options: OpenOptions;
  readonly procedures: Procedures;
  readonly collections: CollectionSpecs;
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
  private broadcast: BroadcastChannel | undefined;
  /** Gives up the wait for ownership, or the ownership itself. */
  private turn: Turn | undefined;
  private owned: Owned | undefined;
  private readonly inboxes: Map<number, BroadcastChannel>;
  private readonly ports: MessagePort[];
  private toldProgress: number;

  constructor(name: string, hosting: Hosting, tell: (message: FromHost) => void) {
    this.name = name;
    this.hosting = hosting;
    this.storage = hosting.options.storage ?? defaultStorage();
    this.tell = tell;
    this.id = crypto.randomUUID();
    this.inboxes = new Map();
    this.ports = [];
    this.toldProgress = 0;
    this.channel =
      this.storage.kind === "opfs" && locks() !== undefined
        ? channelName(this.storage.identity(name))
        : undefined;
  }

  /** Stands for ownership, if it does not already. */
  begin(): void {
    this.tell({ type: "up", channel: this.channel });
    if (this.owned !== undefined) this.announce();
    if (this.turn !== undefined) return;
    const turn = new Turn();
    this.turn = turn;
    this.stand(turn).catch((error) => {
      if (this.turn === turn) this.turn = undefined;
      if (!turn.over.aborted) this.tell({ type: "failed", error: toWire(error) });
    });
  }

  /** Hands over, or stands for ownership no more. Resolves when the file is free. */
  async release(): Promise<void> {
    const { turn } = this;
    if (turn === undefined) return;
    this.turn = undefined;
    turn.end();
    await turn.ended;
  }

  /** A client of this worker's own page asks. */
  hear(message: ToHost, respond: Respond): void {
    // That it is there, if nothing else.
    if (message.type === "who") this.tell({ type: "up", channel: this.channel });
    if (message.type !== "hello" && message.type !== "release" && message.type !== "visit") {
      this.answer(message, respond);
    }
  }

  private async stand(turn: Turn): Promise<void> {
    try {
      // Meanwhile the engine's code is got ready, for the time when nobody has the file.
      const ready = loadModule(this.hosting.options.wasm);
      ready.catch(() => {});
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
    if (turn.over.aborted) return db.close();
    const owned = new Owned(this.id, db, this.hosting);
    this.owned = owned;
    try {
      if (this.channel !== undefined) this.listen(this.channel);
      owned.sweep();
      this.announce();
      await turn.told;
    } finally {
      this.owned = undefined;
      await owned.close().finally(() => this.bow());
    }
  }

  private async open(turn: Turn): Promise<Database> {
    const { options } = this.hosting;
    for (let tries = 0; ; tries += 1) {
      try {
        const { storage } = this;
        const onProgress = (progress: OpenProgress) => this.progress(progress);
        return await open(this.name, { ...options, storage, onProgress, signal: turn.over });
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

  /** Tells the page, though not of every step. */
  private progress(progress: OpenProgress): void {
    const now = Date.now();
    if (now < this.toldProgress + PROGRESS_MS) return;
    this.toldProgress = now;
    this.tell({ type: "state", state: "opening", progress });
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
    port.postMessage({ type: "here", owner: this.id, client: 0, round: 0 });
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
    this.post({ type: "here", owner: this.id, client: 0, round: 0 });
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
    const { owned } = this;
    if (owned === undefined) {
      if (message.type === "ask") respond({ type: "gone", owner });
      return;
    }
    const { client } = message;
    if (message.type === "who") respond({ type: "here", owner, client, round: message.round });
    if (message.type === "watch") owned.watch(message, respond);
    if (message.type === "unwatch") owned.watches.remove(message);
    if (message.type !== "ask" || message.protocol !== PROTOCOL) return;
    owned.handle(message, ({ answers, again, failure }) => {
      if (answers.length > 0) respond({ type: "told", owner, answers });
      if (again) respond({ type: "again", owner });
      if (isPoison(failure) || answers.some(isPoisoned)) this.renew();
    });
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

/** The open database and the protocol over it. */
class Owned {
  private readonly db: Database;
  private readonly ledger: Ledger;
  readonly watches: Watches;
  private swept: number;

  constructor(id: string, db: Database, { procedures, collections: specs }: Hosting) {
    this.db = db;
    const collections = new ServedCollections(db, specs);
    this.watches = new Watches(id, db, collections);
    this.ledger = new Ledger(new DatabaseJournal({ db, procedures, collections }));
    this.swept = 0;
  }

  watch(watch: Watch, respond: Respond): void {
    try {
      this.watches.add(watch, respond);
    } catch {
      // Who asked has made sure of the range by reading it. What fails now, its next renewal tries.
    }
  }

  handle(ask: Ask, answer: (reply: Reply) => void): void {
    const done = (reply: Reply) => {
      answer(reply);
      if (ask.requests.some(({ write }) => write > 0)) this.watches.changed();
    };
    const now = Date.now();
    if (now > this.swept + SWEEP_MS) this.sweep();
    const reply = this.ledger.handle(ask, now);
    const asked = (call: string) => ask.requests.some((request) => request.call === call);
    const undone = (error: unknown) => done(this.ledger.failed(ask, reply.last, error));
    if (this.db.durability === "buffered" && !asked("flush") && !asked("commit")) {
      this.db.committed.then(() => done(reply), undone);
      return;
    }
    try {
      if (this.db.durability === "flushed" || asked("flush")) this.db.flush();
      else this.db.commit();
    } catch (error) {
      undone(error);
      return;
    }
    done(reply);
  }

  sweep(): void {
    this.swept = Date.now();
    try {
      this.ledger.sweep(this.swept);
    } catch {
      // What is left of clients that are gone takes some room, and nothing else.
    }
  }

  async close(): Promise<void> {
    this.watches.stop();
    await this.db.close();
  }
}
