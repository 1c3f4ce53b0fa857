/**
 * The owner's half of the protocol, without timers, ports or other I/O. It applies the writes of each client
 * in the order of their numbers, each at most once, and remembers the answers that the client may ask for
 * again. It stores them in the same commit as the writes, so that the next owner knows which writes were
 * applied.
 *
 * Invariant: a write is applied only if its number is one above the last write of its client. So any owner
 * with the client's record, this one or the next, refuses to apply it again.
 */

import { type ClientRecord, decodeRecord, encodeRecord, type Result } from "./client-record.js";
import {
  type Answer,
  callName,
  type Outcome,
  type Request,
  type RequestBatch,
  type WireError,
} from "./messages.js";

/**
 * How long the record of a client is kept after the last deadline in it, in milliseconds. An older write is
 * refused because of its deadline, so it cannot be applied again once the record is removed.
 */
export const CLIENT_RECORD_LEASE_MS = 60_000;

/** The storage of client records, and the database that requests act on. */
export interface ClientRecordStore {
  /** Runs `body`, the work of a batch. Its writes become one commit or, if it throws, are all undone. */
  atomically<T>(body: () => T, batch: RequestBatch): T;
  /**
   * Performs a request, completely or not at all, and returns its result. An error that it throws undoes the
   * request, and is its outcome.
   */
  perform(request: Request): unknown;
  /** The stored record of a client, or `undefined` if there is none. */
  load(client: number): Uint8Array | undefined;
  /** Stores the record of a client. */
  save(client: number, record: Uint8Array): void;
  /** All clients that have a record. */
  clients(): number[];
  /** Removes the record of a client. */
  forget(client: number): void;
  /** An error in the form in which it is sent. */
  wire(error: unknown): WireError;
}

/** The result of a `RequestBatch`. */
export interface Reply {
  /** The answers to its requests that exist so far. */
  readonly answers: readonly Answer[];
  /** Whether writes before the requested ones are missing, so that the client has to send everything again. */
  readonly resend: boolean;
  /** The number of the client's last write that was done before this batch. */
  readonly last: number;
  /** The reason why the whole batch failed, if it did. */
  readonly failure?: WireError;
}

interface Client {
  acknowledged: number;
  lease: number;
  /** The number of the last write that was applied or skipped. */
  last: number;
  /** The outcomes above `acknowledged`, by ascending number. */
  results: Map<number, Outcome>;
}

/** The owner's half of the protocol. */
export class RequestLog {
  private readonly store: ClientRecordStore;
  private readonly clients: Map<number, Client>;
  /** The time until which each client's record is needed, by the owner's clock. */
  private readonly until: Map<number, number>;

  constructor(store: ClientRecordStore) {
    this.store = store;
    this.clients = new Map();
    this.until = new Map();
  }

  /**
   * Performs the requests of a client. When it returns, the writes are made but not yet committed. A `refusal`
   * is the answer to every request that was not done before, and none of them is ever done: what one owner has
   * refused must not be applied by the next.
   *
   * `now` is the time by the owner's monotonic clock, which its messages state. `wall` is the time by which
   * records are kept: it means the same to the next owner.
   */
  handle(batch: RequestBatch, now: number, refusal?: WireError, wall = now): Reply {
    // Until it is known which writes were done before, no request is answered.
    let last = Number.POSITIVE_INFINITY;
    try {
      const client = this.clientOf(batch.client);
      acknowledge(client, batch.acknowledged);
      const before = client.last;
      last = before;
      const work = () => this.work(client, batch, now, wall, refusal, before);
      return batch.requests.some(({ write }) => write > 0)
        ? this.store.atomically(work, batch)
        : work();
    } catch (error) {
      return this.failed(batch, last, error);
    }
  }

  /**
   * To be called if the batch could not be committed and was undone, or could not be flushed: the error becomes
   * the outcome of every request that was done just now. Earlier requests are unchanged.
   */
  failed(batch: RequestBatch, last: number, error: unknown): Reply {
    // Requests of other clients may be in the same commit: only the stored records show their outcome.
    this.clients.clear();
    const results = this.resultsOf(batch.client);
    const failure = { error: this.store.wire(error) };
    const answers: Answer[] = [];
    for (const { id, call, write } of batch.requests) {
      const outcome = write > 0 && write <= last ? results.get(write) : failure;
      if (call !== "" && outcome !== undefined) answers.push({ id, outcome });
    }
    return { answers, resend: false, last, failure: failure.error };
  }

  /** The known outcomes of a client, as far as the database can be read. */
  private resultsOf(client: number): ReadonlyMap<number, Outcome> {
    try {
      return this.clientOf(client).results;
    } catch {
      // The next owner will answer.
      return new Map();
    }
  }

  /** Removes the records of clients whose requests have all expired. Returns how many. */
  forgetExpired(now: number, wall = now): number {
    let swept = 0;
    // A wall clock that was set forward does not end the lease of a client that sent requests just now.
    for (const [number, until] of this.until) if (until < now) this.until.delete(number);
    const isExpired = (number: number, lease: number) => lease < wall && !this.until.has(number);
    for (const number of this.store.clients()) {
      if (!isExpired(number, this.clientOf(number).lease)) continue;
      this.store.forget(number);
      swept += 1;
    }
    for (const [number, { lease }] of this.clients) {
      if (isExpired(number, lease)) this.clients.delete(number);
    }
    return swept;
  }

  private clientOf(number: number): Client {
    const known = this.clients.get(number);
    if (known !== undefined) return known;
    const client = clientFrom(this.store.load(number));
    this.clients.set(number, client);
    return client;
  }

  private work(
    client: Client,
    batch: RequestBatch,
    now: number,
    wall: number,
    refusal: WireError | undefined,
    last: number,
  ): Reply {
    const answers: Answer[] = [];
    let resend = false;
    let changed = false;
    for (const request of batch.requests) {
      if (request.after > client.last) {
        resend = true;
        break;
      }
      const { id, write } = request;
      if (write > 0 && write <= client.last) {
        const kept = client.results.get(write);
        if (kept !== undefined) answers.push({ id, outcome: kept });
        continue;
      }
      if (request.call === "") {
        client.last = write;
        continue;
      }
      const outcome = refusal ? { error: refusal } : this.outcomeOf(request, now);
      answers.push({ id, outcome });
      if (write === 0) continue;
      client.last = write;
      client.results.set(write, outcome);
      const until = request.deadline + CLIENT_RECORD_LEASE_MS;
      client.lease = Math.max(client.lease, until - now + wall);
      this.until.set(batch.client, Math.max(this.until.get(batch.client) ?? 0, until));
      changed = true;
    }
    if (changed) this.store.save(batch.client, encodeRecord(recordOf(client)));
    return { answers, resend, last };
  }

  private outcomeOf(request: Request, now: number): Outcome {
    if (request.hangCount === 2) return { error: endless(request) };
    if (now >= request.deadline) return { error: tooLate(request) };
    try {
      return { value: this.store.perform(request) };
    } catch (error) {
      return { error: this.store.wire(error) };
    }
  }
}

function clientFrom(bytes: Uint8Array | undefined): Client {
  if (bytes === undefined) return { acknowledged: 0, lease: 0, last: 0, results: new Map() };
  const { acknowledged, lease, results } = decodeRecord(bytes);
  const last = results.at(-1)?.request ?? acknowledged;
  return {
    acknowledged,
    lease,
    last: Math.max(acknowledged, last),
    results: new Map(results.map(({ request, outcome }) => [request, outcome])),
  };
}

function recordOf({ acknowledged, lease, results }: Client): ClientRecord {
  const list: Result[] = [];
  for (const [request, outcome] of results) list.push({ request, outcome });
  return { acknowledged, lease, results: list };
}

/**
 * Drops the outcomes up to this number, which the client needs no more. Writes up to it are no longer
 * applied.
 */
function acknowledge(client: Client, acknowledged: number): void {
  if (acknowledged <= client.acknowledged) return;
  client.acknowledged = acknowledged;
  client.last = Math.max(client.last, acknowledged);
  for (const number of client.results.keys()) {
    if (number > acknowledged) break;
    client.results.delete(number);
  }
}

function endless(request: Request): WireError {
  return {
    name: "OwnerUnavailableError",
    code: "VARVE_OWNER_UNAVAILABLE",
    message:
      `${callName(request)}() kept two workers from answering for several seconds, one after the ` +
      "other, and both were ended. It was not done, and is not tried again. Look for a loop without an " +
      "end in it, or have it do less in one call.",
    more: { applied: false },
  };
}

function tooLate(request: Request): WireError {
  return {
    name: "OwnerUnavailableError",
    code: "VARVE_OWNER_UNAVAILABLE",
    message:
      `${callName(request)}() reached the owner of the database after its deadline, and was ` +
      "not done. Try again, or allow more time with the option timeout.",
    more: { applied: false },
  };
}
