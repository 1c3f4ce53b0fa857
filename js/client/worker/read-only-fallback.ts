/**
 * What a service worker has in the place of an owner: it has no synchronous files, so that it can own none,
 * but it can read the file as it is while nobody else owns it. As soon as there is an owner that is asked.
 */

import type { Database } from "../../database/database.js";
import { open } from "../../database/open.js";
import { DatabaseNotFoundError, OwnerUnavailableError } from "../../errors/index.js";
import { openImage } from "../../storage/bytes.js";
import type { Storage } from "../../storage/storage.js";
import { monotonicNow, setTimeout } from "../../util/clock.js";
import { toWire } from "../protocol/errors.js";
import { callName, type Request, type ToOwner, type WireError } from "../protocol/messages.js";
import { RequestLog } from "../protocol/request-log.js";
import { DatabaseClientRecords, storedVersion } from "./client-record-store.js";
import { ServedCollections } from "./collection-handlers.js";
import { isJob } from "./jobs.js";
import { type HostOptions, ownerNow, type Respond } from "./owner.js";
import { Watches } from "./subscriptions.js";

/** Who wants to write waits so long for an owner: between two there is none for a moment. */
const HAND_OVER_MS = 300;

/** The next owner gets the lock within less. */
const OFFER_MS = 50;

/** A file that changes while it is read is read again, so often. */
const READS = 10;

/** Between two of those, growing. */
const PAUSE_MS = 10;

/** The file as it was. */
interface Snapshot {
  readonly file: File;
  readonly db: Database;
  readonly requestLog: RequestLog;
  readonly watches: Watches;
}

/** What a host is to its reader. */
export interface ReaderHost {
  readonly id: string;
  readonly name: string;
  readonly storage: Storage;
  readonly hostOptions: HostOptions;
  /** The lock of owners. */
  readonly lock: string;
  module(): Promise<WebAssembly.Module>;
  refusalFor(build: string): WireError | false | undefined;
  /** The file belongs to this version of the application. Says whether that is a later one. */
  isLate(version: number): boolean;
}

/** Answers clients of its own realm while there is no owner. */
export class Reader {
  private readonly host: ReaderHost;
  private snapshot: Snapshot | undefined;
  /** What is done for one message after the other. */
  private last: Promise<void>;
  /** Since when nobody has owned it, as far as it was looked. */
  private freeSince: number | undefined;
  /** An owner was there, and may have changed the file: Chromium does not tell so in a private window. */
  private doubts: boolean;

  constructor(host: ReaderHost) {
    this.host = host;
    this.snapshot = undefined;
    this.doubts = false;
    this.last = Promise.resolve();
    this.freeSince = undefined;
  }

  hear(message: ToOwner, respond: Respond): void {
    this.last = this.last
      .then(() => this.answer(message, respond))
      .catch((error) => this.fail(message, error, respond));
  }

  /** An owner has come or gone. */
  doubt(): void {
    this.doubts = true;
  }

  /** An owner has gone. Unless there is another one soon, the file is read. */
  async offer(respond: Respond): Promise<void> {
    this.freeSince = undefined;
    await pause(OFFER_MS);
    const { id: owner } = this.host;
    await this.whileFree(async () =>
      respond({ type: "owner", owner, client: 0, round: 0, at: ownerNow() }),
    );
  }

  /** Forgets the file. */
  async close(): Promise<void> {
    await this.last;
    await this.forget();
  }

  private async answer(message: ToOwner, respond: Respond): Promise<void> {
    const { id: owner } = this.host;
    const writes = message.type === "requests" && message.requests.some(({ write }) => write > 0);
    if (writes) await this.lull();
    // Before it keeps others from owning the file.
    if (message.type === "requests") await this.host.module();
    const isFree = await this.whileFree(() => this.checkAbort(message, respond));
    // Whoever has it now answers what was asked here, too.
    const waits = message.type === "requests" || message.type === "watch";
    if (!isFree && waits) respond({ type: "resigned", owner });
  }

  /** Waits for as long as the next owner might still come. */
  private async lull(): Promise<void> {
    await this.whileFree(async () => {});
    if (this.freeSince !== undefined) await pause(this.freeSince + HAND_OVER_MS - monotonicNow());
  }

  private async checkAbort(message: ToOwner, respond: Respond): Promise<void> {
    const { id: owner } = this.host;
    const { client } = message;
    if (message.type === "find-owner") {
      respond({ type: "owner", owner, client, round: message.round, at: ownerNow() });
      return;
    }
    if (message.type === "cancel") return;
    if (message.type === "unwatch") {
      this.snapshot?.watches.remove(message);
      return;
    }
    const { db, requestLog, watches } = await this.look();
    if (message.type === "watch") {
      try {
        watches.add(message, respond);
      } catch (error) {
        respond(watches.refusal(message, error));
      }
      return;
    }
    if (this.host.isLate(storedVersion(db))) return;
    const refusal = this.host.refusalFor(message.build);
    const { answers, again } = requestLog.handle(
      message,
      ownerNow(),
      refusal || undefined,
      Date.now(),
    );
    if (answers.length > 0) {
      respond({ type: "responses", owner, answers, term: message.term, at: ownerNow() });
    }
    if (again) respond({ type: "resend", owner });
  }

  /** Runs it if there is no owner, and none can come meanwhile. Says whether it did. */
  private whileFree(task: () => Promise<void>): Promise<boolean> {
    const options = { mode: "shared", ifAvailable: true } as const;
    return navigator.locks.request(this.host.lock, options, async (lock) => {
      this.freeSince = lock === null ? undefined : (this.freeSince ?? monotonicNow());
      if (lock === null) this.doubt();
      else await task();
      return lock !== null;
    });
  }

  /** The file cannot be read. What it tells of writes that an owner may have done cannot be known then. */
  private fail(message: ToOwner, error: unknown, respond: Respond): void {
    const { id: owner, name } = this.host;
    // The next owner tells what there is. What is asked for behind the watch does not wait for that.
    if (message.type === "watch") {
      const { id } = message;
      respond({ type: "changes", owner, id, epoch: 0, number: -1, isAll: false, changes: [] });
    }
    if (message.type !== "requests") return;
    const applied = error instanceof DatabaseNotFoundError ? false : "unknown";
    const answers = message.requests
      .filter(({ call }) => call !== "")
      .map((request) => {
        const { id, write } = request;
        const told = write === 0 ? error : refused(name, request, { applied, cause: error });
        return { id, outcome: { error: toWire(told) } };
      });
    respond({ type: "responses", owner, answers, term: message.term, at: ownerNow() });
  }

  // ---------------------------------------------------------------- the file

  /** The file as it is now, or as it was read last if it has not changed. */
  private async look(): Promise<Snapshot> {
    let failed: File | undefined;
    for (let reads = 1; reads <= READS; reads += 1) {
      const file = await this.file();
      const { snapshot } = this;
      if (snapshot !== undefined && !this.doubts && isSame(snapshot.file, file)) return snapshot;
      try {
        const fresh = await this.read(file);
        // Some programs open it without the lock, and may have written while it was read.
        if (isSame(file, await this.file())) {
          await this.forget();
          this.snapshot = fresh;
          this.doubts = false;
          return fresh;
        }
        await fresh.db.close();
      } catch (error) {
        // What was read in part may be damaged, or the browser refuses to read what has changed. A
        // file tells its time in milliseconds, so that only one that fails twice is taken to be at rest.
        const isAtRest = isSame(file, await this.file());
        if (isAtRest && failed !== undefined && isSame(failed, file)) throw error;
        failed = file;
      }
      await pause(PAUSE_MS * reads);
    }
    throw unsteady(this.host.name);
  }

  private async file(): Promise<File> {
    const { name, storage } = this.host;
    const file = await storage.look?.(name);
    if (file !== undefined) return file;
    throw new DatabaseNotFoundError(
      `There is no database "${name}" yet, and a service worker creates none. A page that connects does.`,
    );
  }

  private async read(file: File): Promise<Snapshot> {
    const { id, name, hostOptions, module } = this.host;
    const { procedures, collections: specs, options } = hostOptions;
    const bytes = Promise.resolve(await file.arrayBuffer());
    const storage: Storage = {
      kind: "image",
      timers: false,
      identity: () => ({ name }),
      open: () => openImage(name, bytes),
    };
    const { memory, ordered } = options;
    const db = await open(name, { storage, readOnly: true, wasm: module(), memory, ordered });
    const collections = new ServedCollections(db, specs);
    const requestLog = new RequestLog(new SnapshotJournal(name, { db, procedures, collections }));
    return { file, db, requestLog: requestLog, watches: new Watches(id, db, collections) };
  }

  private async forget(): Promise<void> {
    const { snapshot } = this;
    this.snapshot = undefined;
    snapshot?.watches.stop();
    await snapshot?.db.close();
  }
}

/** What was done can be read in it; what would have to be done is refused. */
class SnapshotJournal extends DatabaseClientRecords {
  private readonly name: string;

  constructor(name: string, service: ConstructorParameters<typeof DatabaseClientRecords>[0]) {
    super(service);
    this.name = name;
  }

  override atomically<T>(body: () => T): T {
    return body();
  }

  override perform(request: Request): unknown {
    if (request.write === 0 && !isJob(request)) return super.perform(request);
    throw refused(this.name, request, { applied: false });
  }

  /** Nothing is kept: whatever was refused is over for the client. */
  override save(): void {}
}

function refused(
  name: string,
  request: Request,
  options: { applied: false | "unknown"; cause?: unknown },
): OwnerUnavailableError {
  return new OwnerUnavailableError(
    `${callName(request)}() on "${name}" was not done: a service worker only reads the file, ` +
      "and no page is open whose worker could write to it. Keep the write until one is.",
    options,
  );
}

function isSame(a: File, b: File): boolean {
  return a.lastModified === b.lastModified && a.size === b.size;
}

function unsteady(name: string): OwnerUnavailableError {
  return new OwnerUnavailableError(
    `The file of "${name}" keeps changing while it is read: a program opened it without serve() ` +
      "and is writing. Try again later.",
    { applied: false },
  );
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
