/**
 * The replacement for an owner in a service worker: it has no synchronous files and cannot own a database,
 * but it can read the file while no other worker owns it. As soon as there is an owner, that owner answers.
 */

import type { Database } from "../../database/database.js";
import { openRegistered } from "../../database/opening.js";
import { DatabaseNotFoundError, OwnerUnavailableError } from "../../errors/index.js";
import { openImage } from "../../storage/bytes.js";
import type { Storage } from "../../storage/storage.js";
import { monotonicNow, setTimeout } from "../../util/clock.js";
import { toWire } from "../protocol/errors.js";
import { HISTORY } from "../protocol/history-pages.js";
import { callName, type Request, type ToOwner, type WireError } from "../protocol/messages.js";
import { RequestLog } from "../protocol/request-log.js";
import { DatabaseClientRecords, storedVersion } from "./client-record-store.js";
import { ServedCollections } from "./collection-handlers.js";
import { isJob } from "./jobs.js";
import { type HostOptions, ownerNow, type Respond } from "./owner.js";
import { Watches } from "./subscriptions.js";

/** How long a write waits for an owner: for a moment between two owners there is none. */
const HAND_OVER_MS = 300;

/** The time within which the next owner gets the lock. */
const OFFER_MS = 50;

/** How often a file is read again that changes while it is read. */
const READS = 10;

/** The pause between two such reads, multiplied by their number. */
const PAUSE_MS = 10;

/** A read of the file. */
interface Snapshot {
  readonly file: File;
  readonly db: Database;
  readonly requestLog: RequestLog;
  readonly watches: Watches;
}

/** The properties of a candidate that its reader needs. */
export interface ReaderHost {
  readonly id: string;
  readonly name: string;
  readonly storage: Storage;
  readonly hostOptions: HostOptions;
  /** The lock of owners. */
  readonly lock: string;
  module(): Promise<WebAssembly.Module>;
  refusalFor(build: string): WireError | false | undefined;
  /** Handles the version that owns the file. Returns whether it is later than this build's. */
  isLate(version: number): boolean;
}

/** Answers clients of its own realm while there is no owner. */
export class ReadOnlyFallback {
  private readonly host: ReaderHost;
  private snapshot: Snapshot | undefined;
  /** The task of the last message: messages are handled one after the other. */
  private last: Promise<void>;
  /** The time since which no owner has been found. */
  private freeSince: number | undefined;
  /** Whether an owner may have changed the file. In a private window, Chromium does not update its time. */
  private mayBeStale: boolean;

  constructor(host: ReaderHost) {
    this.host = host;
    this.snapshot = undefined;
    this.mayBeStale = false;
    this.last = Promise.resolve();
    this.freeSince = undefined;
  }

  receive(message: ToOwner, respond: Respond): void {
    this.last = this.last
      .then(() => this.answer(message, respond))
      .catch((error) => this.fail(message, error, respond));
  }

  /** Has the file read again, because an owner has come or gone. */
  invalidate(): void {
    this.mayBeStale = true;
  }

  /** Answers as the owner after one has resigned, unless another gets the lock soon. */
  async offer(respond: Respond): Promise<void> {
    this.freeSince = undefined;
    await pause(OFFER_MS);
    const { id: owner } = this.host;
    await this.whileFree(async () =>
      respond({ type: "owner", owner, client: 0, round: 0, at: ownerNow() }),
    );
  }

  /** Drops the snapshot after the pending messages. */
  async close(): Promise<void> {
    await this.last;
    await this.forget();
  }

  private async answer(message: ToOwner, respond: Respond): Promise<void> {
    const { id: owner } = this.host;
    const writes = message.type === "requests" && message.requests.some(({ write }) => write > 0);
    if (writes) await this.waitForNextOwner();
    // Loaded first, because afterwards other workers cannot own the file.
    if (message.type === "requests") await this.host.module();
    const isFree = await this.whileFree(() => this.respondTo(message, respond));
    // The owner that has the lock answers this client too.
    const waits = message.type === "requests" || message.type === "watch";
    if (!isFree && waits) respond({ type: "resigned", owner });
  }

  /** Waits as long as the next owner may take to appear. */
  private async waitForNextOwner(): Promise<void> {
    await this.whileFree(async () => {});
    if (this.freeSince !== undefined) await pause(this.freeSince + HAND_OVER_MS - monotonicNow());
  }

  private async respondTo(message: ToOwner, respond: Respond): Promise<void> {
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
    const { db, requestLog, watches } = await this.currentSnapshot();
    if (message.type === "watch") {
      if (message.rows && this.host.isLate(storedVersion(db))) return;
      try {
        const refusal = message.rows && this.host.refusalFor(message.build);
        if (refusal) respond(watches.refusal(message, undefined, refusal));
        else watches.add(message, respond);
      } catch (error) {
        respond(watches.refusal(message, error));
      }
      return;
    }
    if (this.host.isLate(storedVersion(db))) return;
    const refusal = this.host.refusalFor(message.build);
    const { answers, resend } = requestLog.handle(
      message,
      ownerNow(),
      refusal || undefined,
      Date.now(),
    );
    if (answers.length > 0) {
      respond({ type: "responses", owner, answers, term: message.term, at: ownerNow() });
    }
    if (resend) respond({ type: "resend", owner });
  }

  /** Runs a task while no owner has the lock, and keeps others from getting it. Returns whether it ran. */
  private whileFree(task: () => Promise<void>): Promise<boolean> {
    const options = { mode: "shared", ifAvailable: true } as const;
    return navigator.locks.request(this.host.lock, options, async (lock) => {
      this.freeSince = lock === null ? undefined : (this.freeSince ?? monotonicNow());
      if (lock === null) this.invalidate();
      else await task();
      return lock !== null;
    });
  }

  /** Answers when the file cannot be read. Whether an owner has done the writes is then unknown. */
  private fail(message: ToOwner, error: unknown, respond: Respond): void {
    const { id: owner, name } = this.host;
    // The next owner sends the contents. Requests made after the watch do not wait for them.
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
        const reported = write === 0 ? error : refused(name, request, { applied, cause: error });
        return { id, outcome: { error: toWire(reported) } };
      });
    respond({ type: "responses", owner, answers, term: message.term, at: ownerNow() });
  }

  // ---------------------------------------------------------------- the file

  /** A snapshot of the file as it is now: the last one if the file has not changed. */
  private async currentSnapshot(): Promise<Snapshot> {
    let failed: File | undefined;
    for (let reads = 1; reads <= READS; reads += 1) {
      const file = await this.file();
      const { snapshot } = this;
      if (snapshot !== undefined && !this.mayBeStale && isSame(snapshot.file, file))
        return snapshot;
      try {
        const fresh = await this.read(file);
        // A program may open the file without the lock, and may have written while it was read.
        if (isSame(file, await this.file())) {
          await this.forget();
          this.snapshot = fresh;
          this.mayBeStale = false;
          return fresh;
        }
        await fresh.db.close();
      } catch (error) {
        // A partly written file may look damaged, and the browser refuses to read a changed one. File times
        // have milliseconds, so only a file that fails twice counts as stable.
        const isStable = isSame(file, await this.file());
        if (isStable && failed !== undefined && isSame(failed, file)) throw error;
        failed = file;
      }
      await pause(PAUSE_MS * reads);
    }
    throw keepsChanging(this.host.name);
  }

  private async file(): Promise<File> {
    const { name, storage } = this.host;
    const file = await storage.snapshot?.(name);
    if (file !== undefined) return file;
    throw new DatabaseNotFoundError(
      `There is no database "${name}" yet, and a service worker creates none. A page that connects does.`,
    );
  }

  private async read(file: File): Promise<Snapshot> {
    const { id, name, hostOptions, module } = this.host;
    const { procedures, notes, collections: specs, options } = hostOptions;
    const bytes = Promise.resolve(await file.arrayBuffer());
    const storage: Storage = {
      kind: "image",
      timers: false,
      identity: () => ({ name }),
      open: () => openImage(name, bytes),
    };
    const { memory, ordered } = options;
    const db = await openRegistered(name, {
      storage,
      readOnly: true,
      wasm: module(),
      memory,
      ordered,
    });
    const collections = new ServedCollections(db, specs);
    const requestLog = new RequestLog(
      new SnapshotClientRecords(name, { db, procedures, notes, collections }),
    );
    return { file, db, requestLog, watches: new Watches(id, db, collections) };
  }

  private async forget(): Promise<void> {
    const { snapshot } = this;
    this.snapshot = undefined;
    snapshot?.watches.stop();
    await snapshot?.db.close();
  }
}

/** A record store that answers from stored records, and refuses requests that were not done. */
class SnapshotClientRecords extends DatabaseClientRecords {
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

  /** Stores nothing: refused requests are not repeated. */
  override save(): void {}
}

function refused(
  name: string,
  request: Request,
  options: { applied: false | "unknown"; cause?: unknown },
): OwnerUnavailableError {
  const { call, args } = request;
  const named = call === HISTORY ? args[args[0] === "read" ? 2 : 0] : callName(request);
  return new OwnerUnavailableError(
    `${named}() on "${name}" was not done: a service worker only reads the file, ` +
      "and no page is open whose worker could write to it. Keep the write until one is.",
    options,
  );
}

function isSame(a: File, b: File): boolean {
  return a.lastModified === b.lastModified && a.size === b.size;
}

function keepsChanging(name: string): OwnerUnavailableError {
  return new OwnerUnavailableError(
    `The file of "${name}" keeps changing while it is read: a program opened it without serve() ` +
      "and is writing. Try again later.",
    { applied: false },
  );
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
