/** An open database and the owner's half of the protocol over it. */

import type { MigrateProgress } from "../../collection/migrate.js";
import { Database } from "../../database/database.js";
import { CLOSED } from "../../session/call-guard.js";
import type { OpenOptions } from "../../session/options.js";
import { monotonicNow, nextTask } from "../../util/clock.js";
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
import type { Procedures } from "./handlers.js";
import { JobRunner } from "./jobs.js";
import { Watches } from "./subscriptions.js";

/** Between two looks for clients that can ask for nothing any more. */
const SWEEP_MS = 60_000;

/** The first one can wait until all have been answered who waited for an owner. */
const FIRST_SWEEP_MS = 5_000;

/**
 * The clock of owners, which deadlines are told by: milliseconds, and no step ever. Clients never compare it
 * with a clock of their own, only with what an owner has said before.
 */
export const ownerNow = monotonicNow;

/** Whom an owner answers, and how. */
export type Respond = (message: ToClient) => void;

/** Options for `db.migrate` that report its progress to the page and end it if the worker releases the database. */
export interface Migrating {
  readonly onProgress: (progress: MigrateProgress) => void;
  readonly signal: AbortSignal;
}

/** Converts what an earlier version of the application has stored to what this one needs. */
export type Migrate = (db: Database, from: number, migrating: Migrating) => unknown;

/** What a host opens and what it does there. */
export interface HostOptions {
  readonly options: OpenOptions;
  readonly procedures: Procedures;
  readonly collections: CollectionSpecs;
  /** The application's version, where the worker's file says it. */
  readonly version: number | undefined;
  readonly migrate: Migrate | undefined;
  /** Modules that are to be in the same file (`eager-imports.ts`). */
  readonly eagerModules: Readonly<Record<string, unknown>>;
}

/** The open database and the protocol over it. */
export class Owner {
  private readonly db: Database;
  private readonly hostOptions: HostOptions;
  private readonly requestLog: RequestLog;
  readonly watches: Watches;
  readonly work: JobRunner;
  private swept: number;
  private isClosed: boolean;

  constructor(
    id: string,
    db: Database,
    hostOptions: HostOptions,
    hear: (progress: ClientProgress | undefined) => void,
  ) {
    const { procedures, collections: specs } = hostOptions;
    this.db = db;
    this.hostOptions = hostOptions;
    const collections = new ServedCollections(db, specs);
    this.watches = new Watches(id, db, collections);
    this.work = new JobRunner(db, hear);
    this.requestLog = new RequestLog(new DatabaseClientRecords({ db, procedures, collections }));
    this.swept = ownerNow() + FIRST_SWEEP_MS - SWEEP_MS;
    this.isClosed = false;
  }

  /** The last version of the application that has had this database; 0 if none has said it. */
  get version(): number {
    return storedVersion(this.db);
  }

  /** Whether the worker's own program has closed what is served. */
  get isLost(): boolean {
    return (Database.sessionOf(this.db).gate & CLOSED) !== 0;
  }

  /** From now on it belongs to this version: earlier ones do not open it any more. */
  async upgrade(version: number, migrating: Migrating): Promise<void> {
    const { migrate, options } = this.hostOptions;
    const from = this.version;
    if (version <= from || options.readOnly === true) return;
    await migrate?.(this.db, from, migrating);
    storeVersion(this.db, version);
  }

  watch(watch: Watch, respond: Respond): void {
    try {
      this.watches.add(watch, respond);
    } catch (error) {
      respond(this.watches.refusal(watch, error));
    }
  }

  handle(
    batch: RequestBatch,
    refusal: WireError | undefined,
    answer: (reply: Reply) => void,
  ): void {
    const done = (reply: Reply) => {
      answer(reply);
      if (now > this.swept + SWEEP_MS) this.sweep(now);
    };
    const now = ownerNow();
    const reply = this.requestLog.handle(batch, now, refusal, Date.now());
    const asked = (call: string) => batch.requests.some((request) => request.call === call);
    const undone = (error: unknown) => done(this.requestLog.failed(batch, reply.last, error));
    try {
      if (this.db.durability === "flushed" || asked("flush")) {
        this.db.flush();
        // It may be told only later that the file is lost.
        this.db.flushed.then(() => done(reply), undone);
        return;
      }
      if (this.db.durability === "buffered" && !asked("commit")) {
        this.db.committed.then(() => done(reply), undone);
        return;
      }
      this.db.commit();
    } catch (error) {
      undone(error);
      return;
    }
    done(reply);
  }

  private async sweep(now: number): Promise<void> {
    this.swept = now;
    try {
      // It looks through a range, of which the first in a database has all keys sorted.
      while (!this.isClosed && Database.sessionOf(this.db).engine.sortPart()) {
        await nextTask();
      }
      if (!this.isClosed) this.requestLog.sweep(now, Date.now());
    } catch {
      // What is left of clients that are gone takes some room, and nothing else.
    }
  }

  async close(): Promise<void> {
    this.isClosed = true;
    this.watches.stop();
    this.work.close();
    await this.db.close();
  }
}
