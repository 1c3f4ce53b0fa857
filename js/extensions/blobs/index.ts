/**
 * `varve/blobs`: files and streams of any size in a database, or through a client of one.
 *
 * A blob is a record that describes it and chunks, all of them raw keys below a prefix:
 *
 * - `PREFIXof/KEY`: what the blob is, as JSON text
 * - `PREFIXin/VERSION/NUMBER`: its chunks
 * - `PREFIXwas/VERSION`: until when chunks that no blob has are kept, in milliseconds of the wall clock: an upload that runs
 *   renews that time, and so does what still reads a version that was replaced
 *
 * So a torn upload leaves chunks that the next program removes, and never a part of a blob. Removing only deletes, since
 * on a full disk nothing else can be written.
 */

import { badCall, MalformedValueError, StaleViewError } from "../../errors/base.js";
import {
  clearInterval,
  clearTimeout,
  monotonicNow,
  nextTask,
  setInterval,
  setTimeout,
  timeSlice,
  unref,
} from "../../util/clock.js";
import { decoder } from "../../util/text-coders.js";
import { type Awaitable, entriesIn, type Raw, rawOf, refused, using } from "../raw.js";
import { type BlobSource, chunksOf, openSource } from "./source.js";
import { type BlobInfo, StoredBlob } from "./stored-blob.js";

export type { BlobSource } from "./source.js";
export type { BlobInfo, BlobRange, StoredBlob } from "./stored-blob.js";

/** The options of `Blobs`. */
export interface BlobsOptions {
  /** What the keys in the database begin with, `"blobs/"` by default. Everything else in the database stays untouched. */
  prefix?: string | undefined;
  /**
   * How long the bytes of a blob that was replaced or deleted are kept for those that read it, in milliseconds from the
   * last read: 15,000 by default. 0 frees their space at once, and reading them on fails.
   */
  keepReplaced?: number | undefined;
}

/** The options of `Blobs.put`. */
export interface PutOptions {
  /** The media type, such as `video/mp4`. Without it, that of the `Blob`, the `File` or the `Response`. */
  type?: string | undefined;
  /** Ends the upload. What was there before stays. */
  signal?: AbortSignal | undefined;
  /** Called with the number of bytes that are stored so far. */
  onProgress?: ((bytes: number) => void) | undefined;
}

/** Four of them, with their keys, fill a segment of 1 MiB, and each is one commit. */
const CHUNK_SIZE = 248 << 10;

/** How many chunks are on their way to the owner of the database at a time. */
const MAX_PENDING = 4;

/**
 * How long the chunks of an upload are kept that no longer renews that time, as its tab was closed. The upload itself gives
 * up after half of it, so that what it sent before cannot arrive after they are being removed.
 */
const UPLOAD_LEASE_MS = 300_000;

/** How often an upload renews it. Browsers delay timers of hidden tabs, to one a minute at most. */
const RENEW_MS = 20_000;

/** How many keys are removed in one task. */
const REMOVED_AT_ONCE = 64;

const SLICE_MS = 8;

/** Timers of a longer time would end at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

const NEVER = Number.POSITIVE_INFINITY;

/** What the record of a blob holds. */
interface Head {
  readonly version: string;
  readonly size: number;
  readonly type: string;
  readonly modified: number;
  readonly chunkSize: number;
}

/** A database has `committed`; a client's calls are answered when they are. */
type Host = Raw & { readonly committed?: Promise<void> };

/**
 * Files, films, downloads: values of any size, which are written and read in chunks.
 *
 * ```ts
 * const films = new Blobs(shop); // a database, or a client on a page
 * await films.put("intro", await fetch("/intro.mp4")); // or a File, a Blob, bytes, a stream
 * const film = await films.get("intro");
 * const head = await film?.bytes({ start: 0, end: 1024 });
 * ```
 *
 * In a service worker, `film.response(event.request)` serves it with ranges.
 *
 * The database stays yours: close it yourself. Every call rejects with the errors of the database, such as
 * `QuotaExceededError`, and with a `TypeError` (`VARVE_BAD_ARGUMENT`) for what it cannot take.
 */
export class Blobs {
  private readonly host: Host;
  private readonly prefix: string;
  private readonly keepReplaced: number;
  private lastReclaim: Promise<number>;
  private timer: ReturnType<typeof setTimeout> | undefined;
  /** When the timer ends, by the monotonic clock. */
  private due: number;

  /** @throws TypeError if `to` is no database, as `open` gives it, and no client, as `connect` gives it */
  constructor(to: object, options: BlobsOptions = {}) {
    refuseNoObject("new Blobs()", options);
    const { prefix = "blobs/", keepReplaced = 15_000 } = options;
    this.host = rawOf(to, "Blobs", prefix);
    if (typeof keepReplaced !== "number" || !(keepReplaced >= 0)) {
      throw refused("keepReplaced is a time in milliseconds, from 0.", keepReplaced);
    }
    this.prefix = prefix;
    this.keepReplaced = keepReplaced;
    this.lastReclaim = Promise.resolve(0);
    this.timer = undefined;
    this.due = NEVER;
    // What torn uploads have left, by those who were here before.
    this.reclaimLater(0);
  }

  /**
   * Stores a blob, in chunks, and replaces what the key had. Others see the old content until the last chunk is there, and
   * then the new one. It resolves when that is committed. If it rejects, or the program ends, nothing has changed.
   *
   * @throws (rejects) TypeError for a key that is no string or too long, a type that is not ASCII, a source that has no bytes
   * or a `Response` that failed or has only a part, the source's own error,
   * `QuotaExceededError` if there is no room, the reason of `signal`
   */
  async put(key: string, source: BlobSource, options: PutOptions = {}): Promise<StoredBlob> {
    refuseNoObject("put()", options);
    const { signal, onProgress } = options;
    if (onProgress !== undefined && typeof onProgress !== "function") {
      throw refused("onProgress is a function.", onProgress);
    }
    if (signal !== undefined && typeof signal?.throwIfAborted !== "function") {
      throw refused("signal is an AbortSignal.", signal);
    }
    const name = this.headKey(key);
    // What a header and the type of a `Blob` can hold.
    if (typeof (options.type ?? "") !== "string" || !/^[ -~]*$/.test(options.type ?? "")) {
      throw refused("The type of a blob is ASCII text, such as video/mp4.", options.type);
    }
    signal?.throwIfAborted();
    const { type, parts, cancel } = openSource(source);
    const version = newVersion();
    const upload = new Upload(this.host, this.chunkPrefix(version), this.markerKey(version));
    const onAbort = () => cancel(signal?.reason);
    signal?.addEventListener("abort", onAbort);
    try {
      // A key that is too long, or is no blob's, is refused before the upload and not after it.
      await this.head(name);
      await upload.begin();
      const chunks = chunksOf(parts, CHUNK_SIZE);
      let isOver = timeSlice(SLICE_MS);
      for await (const chunk of until(signal, chunks)) {
        await upload.add(chunk);
        onProgress?.(upload.size);
        if (!isOver()) continue;
        await nextTask();
        isOver = timeSlice(SLICE_MS);
      }
      signal?.throwIfAborted();
      await upload.settled();
      const head: Head = {
        version,
        size: upload.size,
        type: options.type ?? type,
        modified: Date.now(),
        chunkSize: CHUNK_SIZE,
      };
      await this.replace(name, upload, head);
      return this.stored(key, head);
    } catch (error) {
      cancel(error);
      await upload.settled().catch(() => {});
      try {
        // On a page the last commit may have been made although no answer came.
        const now = await this.head(name);
        if (now?.version === version) return this.stored(key, now);
        await this.remove(version, () => true);
      } catch {
        // What is left is removed later, as after a crash.
      }
      throw error;
    } finally {
      upload.end();
      signal?.removeEventListener("abort", onAbort);
    }
  }

  /** The blob of a key, whose bytes are not read yet; `undefined` if there is none. */
  async get(key: string): Promise<StoredBlob | undefined> {
    const head = await this.head(this.headKey(key));
    return head && this.stored(key, head);
  }

  /** Whether the key has a blob. */
  async has(key: string): Promise<boolean> {
    return this.host.has(this.headKey(key));
  }

  /**
   * Deletes a blob, and says whether there was one. Its space is free once no program has read it for `keepReplaced`, and at
   * once if the disk is full.
   */
  async delete(key: string): Promise<boolean> {
    const name = this.headKey(key);
    let version: string | undefined;
    try {
      await this.host.transaction((tx) =>
        using(tx.get(name), (stored) => {
          version = stored && headOf(stored, name).version;
          if (version === undefined) return;
          tx.delete(name);
          tx.set(this.markerKey(version), this.untilLater());
        }),
      );
      await this.host.committed;
    } catch (error) {
      if ((error as { code?: unknown }).code !== "VARVE_QUOTA_EXCEEDED") throw error;
      // There is no room for the marker. The chunks first, so that none are left if this is interrupted.
      if (version === undefined) return false;
      await this.remove(version, () => true);
      await this.host.transaction((tx) =>
        using(tx.get(name), (stored) => {
          // Others may have replaced it meanwhile.
          if (stored && headOf(stored, name).version === version) tx.delete(name);
        }),
      );
      await this.host.committed;
      return true;
    }
    if (version !== undefined) this.reclaimLater(this.keepReplaced);
    return version !== undefined;
  }

  /** What blobs there are, in the order of their keys, without their bytes. With a prefix, those whose keys begin with it. */
  async *list(prefix = ""): AsyncGenerator<BlobInfo, void> {
    const start = this.headKey("");
    const names = [];
    for await (const name of this.host.keys({ prefix: this.headKey(prefix) })) names.push(name);
    for (const name of names) {
      const head = await this.head(name);
      if (head !== undefined) yield infoOf(name.slice(start.length), head);
    }
  }

  /**
   * Removes the bytes that no blob needs: of torn uploads, and of blobs that were replaced or deleted and that no
   * program has read for `keepReplaced`. That happens on its own; call it to have the space before the next step. Returns how many
   * versions it has removed.
   */
  reclaim(): Promise<number> {
    // After the one that runs, which does not see what is due since it began.
    const run = () => this.reclaimAll();
    this.lastReclaim = this.lastReclaim.then(run, run);
    return this.lastReclaim;
  }

  private async reclaimAll(): Promise<number> {
    const markers = [];
    for await (const one of entriesIn(this.host, this.markerKey(""), timeOf)) markers.push(one);
    let removed = 0;
    let next = NEVER;
    const isOver = (marker: Uint8Array | undefined) =>
      marker !== undefined && timeOf(marker) <= Date.now();
    for (const [version, until] of markers) {
      const left = until - Date.now();
      if (left > 0) next = Math.min(next, left);
      else if (await this.remove(version, isOver)) removed += 1;
      // It was read meanwhile.
      else next = Math.min(next, this.keepReplaced);
    }
    // Not for each one that is due soon after.
    this.reclaimLater(Math.max(next, this.keepReplaced / 8));
    return removed;
  }

  /**
   * By one timer, for what is due first. Nothing depends on it, so its errors are ignored: the database may be closed by then.
   */
  private reclaimLater(ms: number): void {
    const due = monotonicNow() + ms;
    if (due >= this.due) return;
    this.due = due;
    clearTimeout(this.timer);
    const run = () => {
      this.due = NEVER;
      this.reclaim().catch(() => {});
    };
    this.timer = setTimeout(run, Math.min(ms, MAX_TIMER_MS));
    unref(this.timer);
  }

  /**
   * Removes the chunks of a version, a few at a time and as long as its marker allows it, and then the marker. Returns whether
   * all are gone.
   */
  private async remove(
    version: string,
    isAllowed: (marker: Uint8Array | undefined) => boolean,
  ): Promise<boolean> {
    const { host } = this;
    const marker = this.markerKey(version);
    const range = { prefix: this.chunkPrefix(version), limit: REMOVED_AT_ONCE };
    for (let isOver = false; !isOver; ) {
      const chunks: string[] = [];
      for await (const chunk of host.keys(range)) chunks.push(chunk);
      let wasAllowed = false;
      await host.transaction((tx) =>
        using(tx.get(marker), (stored) => {
          wasAllowed = isAllowed(stored);
          if (!wasAllowed) return;
          for (const chunk of chunks) tx.delete(chunk);
          if (chunks.length === 0) tx.delete(marker);
        }),
      );
      if (!wasAllowed) return false;
      isOver = chunks.length === 0;
      await nextTask();
    }
    await host.committed;
    return true;
  }

  /** Gives the key its new content in one commit. The old one is kept for those that read it. */
  private async replace(name: string, upload: Upload, head: Head): Promise<void> {
    const { host } = this;
    let hadOne = false;
    await host.transaction((tx) =>
      using(tx.get(upload.marker), (marker) => {
        assertKept(marker);
        return using(tx.get(name), (stored) => {
          tx.set(name, JSON.stringify(head));
          tx.delete(upload.marker);
          hadOne = stored !== undefined;
          if (stored === undefined) return;
          const { version } = headOf(stored, name);
          tx.set(this.markerKey(version), this.untilLater());
        });
      }),
    );
    await host.committed;
    if (hadOne) this.reclaimLater(this.keepReplaced);
  }

  private stored(key: string, head: Head): StoredBlob {
    const { host } = this;
    const { version } = head;
    const prefix = this.chunkPrefix(version);
    const marker = this.markerKey(version);
    let renewed = Date.now();
    return new StoredBlob(infoOf(key, head), version, head.chunkSize, async (index, start, end) => {
      const copy = (chunk: Uint8Array | undefined) => chunk?.slice(start, end);
      const part = await using(host.get(prefix + numbered(index)), copy);
      if (part?.length !== end - start) throw await this.missing(key, version);
      if (this.keepReplaced > 0 && Date.now() - renewed > this.keepReplaced / 4) {
        renewed = Date.now();
        // Where the database is read-only, as in a service worker without a tab, nothing is removed either.
        await this.renew(marker).catch(() => {});
      }
      return part as Uint8Array<ArrayBuffer>;
    });
  }

  /** Keeps a version that was replaced while it is read. */
  private async renew(marker: string): Promise<void> {
    if (!(await this.host.has(marker))) return;
    await this.host.transaction((tx) =>
      using(tx.get(marker), (stored) => {
        const later = this.untilLater();
        const until = stored ? timeOf(stored) : 0;
        // Others may keep it for longer.
        if (until > Date.now() && until < Number(later)) tx.set(marker, later);
      }),
    );
  }

  /** What a marker says of a version that was replaced, or read, just now. */
  private untilLater(): string {
    return String(Date.now() + this.keepReplaced);
  }

  private async missing(key: string, version: string): Promise<Error> {
    const now = await this.head(this.headKey(key));
    if (now?.version === version) {
      return new MalformedValueError(
        `A part of the blob "${key}" is missing, as in a database that was salvaged. Store it again.`,
      );
    }
    return new StaleViewError(
      `The blob "${key}" was replaced or deleted since it was got. Get it again.`,
    );
  }

  private async head(name: string): Promise<Head | undefined> {
    return using(this.host.get(name), (stored) => stored && headOf(stored, name)) as Awaitable<
      Head | undefined
    >;
  }

  private headKey(key: string): string {
    if (typeof key !== "string") throw refused("The key of a blob is text.", key);
    return `${this.prefix}of/${key}`;
  }

  private chunkPrefix(version: string): string {
    return `${this.prefix}in/${version}/`;
  }

  private markerKey(version: string): string {
    return `${this.prefix}was/${version}`;
  }
}

/** Chunks that no blob has yet. */
class Upload {
  size: number;
  readonly marker: string;
  private readonly host: Host;
  private readonly prefix: string;
  private chunks: number;
  private pending: Promise<void>[];
  /** Until when its chunks are kept. */
  private until: number;
  private readonly timer: ReturnType<typeof setInterval>;
  private failure: Error | undefined;

  constructor(host: Host, prefix: string, marker: string) {
    this.host = host;
    this.prefix = prefix;
    this.marker = marker;
    this.size = 0;
    this.chunks = 0;
    this.pending = [];
    this.until = 0;
    this.failure = undefined;
    // Not with each chunk, since a source may be slow.
    this.timer = setInterval(() => this.renew(), RENEW_MS);
    unref(this.timer);
  }

  async begin(): Promise<void> {
    this.until = Date.now() + UPLOAD_LEASE_MS;
    await this.write(this.marker, String(this.until));
  }

  /** Writes the next chunk, and waits for one of those before it. The bytes may change after it was called. */
  async add(chunk: Uint8Array): Promise<void> {
    // Before the timer says so: a chunk that came after others have removed the marker would stay for ever.
    assertTime(this.until);
    const written = this.write(this.prefix + numbered(this.chunks), chunk);
    // Awaited later, maybe after another has failed.
    written.catch(() => {});
    this.chunks += 1;
    this.size += chunk.length;
    this.pending.push(written);
    if (this.pending.length >= MAX_PENDING) await this.pending.shift();
    if (this.failure !== undefined) throw this.failure;
  }

  async settled(): Promise<void> {
    const { pending } = this;
    this.pending = [];
    for (const result of await Promise.allSettled(pending)) {
      if (result.status === "rejected") throw result.reason;
    }
  }

  end(): void {
    clearInterval(this.timer);
  }

  private async renew(): Promise<void> {
    let { until } = this;
    try {
      await this.host.transaction((tx) =>
        using(tx.get(this.marker), (stored) => {
          assertKept(stored);
          until = Date.now() + UPLOAD_LEASE_MS;
          tx.set(this.marker, String(until));
        }),
      );
      this.until = until;
    } catch (error) {
      this.failure = error as Error;
    }
  }

  /** What a database is given is lost if its commit fails, so that is awaited too. */
  private async write(key: string, value: string | Uint8Array): Promise<void> {
    const { host } = this;
    const answer = host.set(key, value);
    await (answer instanceof Promise ? answer : host.committed);
  }
}

function assertKept(marker: Uint8Array | undefined): void {
  assertTime(marker ? timeOf(marker) : 0);
}

/** @throws StaleViewError if others may remove the chunks, because this tab was frozen for too long */
function assertTime(until: number): void {
  if (until - Date.now() > UPLOAD_LEASE_MS / 2) return;
  throw new StaleViewError(
    "The upload stood still for minutes, as in a frozen tab, and others may remove it. Store it again.",
  );
}

/** The values of an iteration. If the signal is aborted, it ends at once with its reason, whatever it waits for. */
async function* until<T>(
  signal: AbortSignal | undefined,
  values: AsyncGenerator<T, void>,
): AsyncGenerator<T, void> {
  let onAbort: () => void = () => {};
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal?.reason);
    signal?.addEventListener("abort", onAbort);
  });
  aborted.catch(() => {});
  try {
    while (true) {
      const { done, value } = await Promise.race([values.next(), aborted]);
      if (done) return;
      yield value as T;
    }
  } finally {
    signal?.removeEventListener("abort", onAbort);
    // Not awaited: a source that hangs would never end.
    values.return().catch(() => {});
  }
}

function refuseNoObject(call: string, options: unknown): void {
  if (typeof options === "object" && options !== null) return;
  throw refused(`The options of ${call} are an object.`, options);
}

function infoOf(key: string, { size, type, modified }: Head): BlobInfo {
  return { key, size, type, modified: new Date(modified) };
}

/** In the order of the numbers. */
function numbered(index: number): string {
  return index.toString(16).padStart(8, "0");
}

function newVersion(): string {
  const random = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function timeOf(marker: Uint8Array): number {
  return Number(decoder.decode(marker));
}

/** @throws TypeError if something else has written there */
function headOf(stored: Uint8Array, name: string): Head {
  try {
    const head = JSON.parse(decoder.decode(stored)) as Head;
    if (head.size >= 0 && head.chunkSize > 0 && typeof head.version === "string") return head;
  } catch {
    // As below.
  }
  throw badCall(`The value of "${name}" does not describe a blob: something else has stored it.`);
}
