/** The owner: an open database, and the owner's half of the protocol for it. */

import type { MigrateProgress } from "../../collection/migrate.js";
import { Database } from "../../database/database.js";
import { CLOSED } from "../../session/call-guard.js";
import type { OpenOptions } from "../../session/options.js";
import type { Storage } from "../../storage/storage.js";
import { monotonicNow, nextTask, setTimeout } from "../../util/clock.js";
import type {
  ClientProgress,
  RequestBatch,
  ToClient,
  Watch,
  WireError,
} from "../protocol/messages.js";
import { type Reply, RequestLog } from "../protocol/request-log.js";
import { DatabaseClientRecords, storedVersion, storeVersion } from "./client-record-store.js";
import { type CollectionSpecs, ServedCollections } from "./collection-handlers.js";
import type { Notes, Procedures } from "./handlers.js";
import { JobRunner } from "./jobs.js";
import { Watches } from "./subscriptions.js";

/** The interval of the search for clients whose leases have run out. */
const FORGET_MS = 60_000;

/** The first search waits until the clients that waited for an owner have been answered. */
const FIRST_FORGET_MS = 5_000;

/**
 * The clock of owners, by which deadlines are given: monotonic, in milliseconds. Clients compare it only with
 * earlier times of the same owner.
 */
export const ownerNow = monotonicNow;

/** Sends a message to a client. */
export type Respond = (message: ToClient) => void;

/** Options for `db.migrate` that report its progress to the page and end it if the worker releases the database. */
export interface Migrating {
  readonly onProgress: (progress: MigrateProgress) => void;
  readonly signal: AbortSignal;
}

/** Converts what an earlier version of the application has stored to what this one needs. */
export type Migrate = (db: Database, from: number, migrating: Migrating) => unknown;

/** The time after its announcement at which an owner prepares for lists: first requests come before. */
const PREPARE_MS = 10;

/** The most bytes of records whose keys are sorted then. More are read for that by the first list. */
const MAX_PREPARED_BYTES = 8 << 20;

/** What a candidate opens and serves. */
export interface HostOptions {
  readonly options: OpenOptions;
  readonly procedures: Procedures;
  /** Functions of a procedure's arguments that return its note. */
  readonly notes: Notes;
  readonly collections: CollectionSpecs;
  /** The application's version, where the worker's file says it. */
  readonly version: number | undefined;
  readonly migrate: Migrate | undefined;
  /** The storage, if it has been made already, and its look-up of the database, if it has begun. */
  readonly storage?: Storage | undefined;
  readonly lookup?: Promise<void> | undefined;
  /** Modules to be included in the same file (`eager-imports.ts`). */
  readonly eagerModules: Readonly<Record<string, unknown>>;
}

/** The open database and the protocol over it. */
export class Owner {
  private readonly db: Database;
  private readonly hostOptions: HostOptions;
  private readonly records: DatabaseClientRecords;
  private readonly requestLog: RequestLog;
  private readonly collections: ServedCollections;
  readonly watches: Watches;
  readonly work: JobRunner;
  private forgotAt: number;
  private isClosed: boolean;

  constructor(
    id: string,
    db: Database,
    hostOptions: HostOptions,
    onProgress: (progress: ClientProgress | undefined) => void,
  ) {
    const { procedures, notes, collections: specs } = hostOptions;
    this.db = db;
    this.hostOptions = hostOptions;
    const collections = new ServedCollections(db, specs);
    this.collections = collections;
    this.watches = new Watches(id, db, collections);
    this.work = new JobRunner(db, collections, onProgress);
    this.records = new DatabaseClientRecords({ db, procedures, notes, collections });
    this.requestLog = new RequestLog(this.records);
    this.forgotAt = ownerNow() + FIRST_FORGET_MS - FORGET_MS;
    this.isClosed = false;
  }

  /** The last version of the application that has owned this database; 0 if there was none. */
  get version(): number {
    return storedVersion(this.db);
  }

  /** Whether the worker's own program has closed the database. */
  get isLost(): boolean {
    return (Database.sessionOf(this.db).guard.gate & CLOSED) !== 0;
  }

  /** Migrates the database to this version. Earlier versions do not open it any more. */
  async upgrade(version: number, migrating: Migrating): Promise<void> {
    const { migrate, options } = this.hostOptions;
    const from = this.version;
    if (version <= from || options.readOnly === true) return;
    this.reserve();
    await migrate?.(this.db, from, migrating);
    storeVersion(this.db, version);
  }

  /**
   * Does what every first list needs while no client waits for it: opens the collections, sorts the keys, and reads the
   * first records. All of it takes longer than the list itself.
   */
  async warmUp(): Promise<void> {
    const { collections, db, hostOptions } = this;
    await new Promise((resolve) => setTimeout(resolve, PREPARE_MS));
    try {
      this.reserve();
      // What a new database gets is in memory.
      if (this.isClosed || Database.sessionOf(db).engine.isNew) return;
      for (const name of Object.keys(hostOptions.collections)) {
        await nextTask();
        if (this.isClosed) return;
        collections.get(name);
        if (db.stats().liveBytes > MAX_PREPARED_BYTES) continue;
        if (collections.get(name).count() === 0) continue;
        while (!this.isClosed && Database.sessionOf(db).engine.sortPart()) await nextTask();
        if (!this.isClosed) collections.warmUp(name);
      }
    } catch {
      // The first call of a client reports it.
    }
  }

  /** Reserves the engine's memory: not at the start, because then it takes longer than the first call. */
  private reserve(): void {
    try {
      Database.sessionOf(this.db).engine.reserve();
    } catch {
      // The request reports it.
    }
  }

  /** Begins or renews a watch, unless there is a reason to refuse it. */
  watch(watch: Watch, respond: Respond, refusal?: WireError): void {
    try {
      if (refusal === undefined) this.watches.add(watch, respond);
      else respond(this.watches.refusal(watch, undefined, refusal));
    } catch (error) {
      respond(this.watches.refusal(watch, error));
    }
  }

  handle(
    batch: RequestBatch,
    refusal: WireError | undefined,
    answer: (reply: Reply) => void,
  ): void {
    for (const part of this.records.batchesOf(batch)) {
      // What an owner does not answer, the next one does.
      if (this.isClosed || this.isLost) return;
      this.handlePart(part, refusal, answer);
    }
  }

  private handlePart(
    batch: RequestBatch,
    refusal: WireError | undefined,
    answer: (reply: Reply) => void,
  ): void {
    const done = (reply: Reply) => {
      answer(reply);
      if (now > this.forgotAt + FORGET_MS) this.forgetExpiredClients(now);
    };
    const includes = (call: string) => batch.requests.some((request) => request.call === call);
    if (includes("call")) this.reserve();
    const now = ownerNow();
    const reply = this.requestLog.handle(batch, now, refusal, Date.now());
    const commitFailed = (error: unknown) => done(this.requestLog.failed(batch, reply.last, error));
    try {
      if (includes("flush") || (this.db.durability === "flushed" && !this.isUnchanged(batch))) {
        this.db.flush();
        // The loss of the file may be reported only later.
        this.db.flushed.then(() => done(reply), commitFailed);
        return;
      }
      // Also buffered writes: a client waits for their commit, and those of one task come together.
      this.db.commit();
    } catch (error) {
      commitFailed(error);
      return;
    }
    done(reply);
  }

  /** Whether the batch only reads, and what it has read is in the file and flushed. */
  private isUnchanged(batch: RequestBatch): boolean {
    const { engine } = Database.sessionOf(this.db);
    const writes = batch.requests.some((request) => request.write > 0);
    return !writes && engine.pending() === 0 && !engine.unflushed();
  }

  private async forgetExpiredClients(now: number): Promise<void> {
    this.forgotAt = now;
    try {
      // The search reads a range. The first such read in a database sorts all keys.
      while (!this.isClosed && Database.sessionOf(this.db).engine.sortPart()) {
        await nextTask();
      }
      if (!this.isClosed) this.requestLog.forgetExpired(now, Date.now());
    } catch {
      // Expired records take some space; nothing depends on their removal.
    }
  }

  async close(): Promise<void> {
    this.isClosed = true;
    this.watches.stop();
    this.work.close();
    await this.db.close();
  }
}
