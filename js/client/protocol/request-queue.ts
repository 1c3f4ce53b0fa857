/**
 * The client's half of the protocol, without timers, ports or other I/O.
 *
 * - Requests of one turn form one message. A request without an answer is sent again when another owner
 *   appears, and when the present owner has lost it.
 * - Writes are numbered without gaps. A request gets its number when it is first sent. So a request that was
 *   never sent leaves no gap, and it is certain that it was not applied.
 * - Requests made after a new watch are sent once the watch has begun. So the watch reports their writes,
 *   whichever owner applies them.
 * - Clocks of different realms are unrelated. A client learns from an owner's messages how far that owner's
 *   clock is ahead of its own, and states deadlines by the owner's clock. The estimate is too low by the time
 *   that the owner's message took, so no request is applied after its deadline.
 * - A request ends by its answer, by its signal, or some time after its deadline.
 */

import type {
  CancelRequest,
  Outcome,
  OwnerAnnouncement,
  OwnerQuery,
  OwnerResignation,
  Request,
  RequestBatch,
  ResponseBatch,
  ToClient,
  ToOwner,
  Unwatch,
  Watch,
} from "./messages.js";

/**
 * Milliseconds after its deadline at which a sent request is given up. An owner refuses late requests itself,
 * so this is only for an owner that does not respond at all.
 */
export const GRACE_MS = 500;

/** Milliseconds without a message after which the client asks whether the owner still exists. */
export const OWNER_QUERY_MS = 400;

/** The most requests in a message: an owner remembers them in one record. */
const MAX_BATCH = 4_096;

/** The most unanswered writes: with more, the next message waits for answers. */
const WINDOW_WRITES = 512;

/** How a request ends without an answer. */
export type NoAnswer =
  /** No owner has received it, and none will apply it. */
  | "never-sent"
  /** It was sent, and it cannot be known whether it was applied. */
  | "unknown";

/** How a request ends: answered, given up, or never sent because it cannot be cloned. */
export type Settlement = Outcome | { readonly noAnswer: NoAnswer } | { readonly thrown: unknown };

/** A request, as the client makes it. */
export interface NewRequest {
  /** The name of the call. */
  readonly call: string;
  /** The arguments of the call. */
  readonly args: readonly unknown[];
  /** Whether it writes. Only writes are numbered. */
  readonly writes: boolean;
  /** The time after which no owner applies it, by the same clock as all times given to the queue. */
  readonly deadline: number;
  /** Called once, with the outcome. */
  readonly settle: (settlement: Settlement) => void;
}

/** The outgoing side that the queue needs. */
export interface RequestQueuePort {
  /** Sends a message to that owner; it may get lost. Throws if the message cannot be cloned. */
  post(owner: string, message: ToOwner): void;
  /** Asks every owner that there may be. */
  findOwner(message: OwnerQuery): void;
}

/** A message to an owner that expects no answer. */
export type OneWayMessage =
  | Omit<Watch, "client">
  | Omit<Unwatch, "client">
  | Omit<CancelRequest, "client">;

interface Pending extends NewRequest {
  readonly id: number;
  /** The number of the write; 0 until it is sent, and for reads. */
  write: number;
  after: number;
  /** The owner that it was sent to last, and the round of owner queries at that time. */
  owner: string | undefined;
  round: number;
  sent: boolean;
  /** The `hangCount` of its request. */
  hangs: number;
}

/** The client's half of the protocol. */
export class RequestQueue {
  /** The owner that sent the last message, as long as it is believed to exist. */
  owner: string | undefined;
  /** The client's build, which its messages name. */
  build = "";
  /** The watches that no owner has answered yet. Requests wait for them. */
  readonly blockingWatches: Set<number> = new Set();
  private readonly client: number;
  private readonly port: RequestQueuePort;
  /** The requests without an answer, in the order in which they were made. */
  private readonly pending = new Map<number, Pending>();
  /** The numbers of unfinished writes that were sent, in order. `undefined`: given up. */
  private readonly writes = new Map<number, Pending | undefined>();
  private lastId = 0;
  private lastWrite = 0;
  private round = 0;
  private answeredRound = 0;
  /** The number of owners that this client has known. */
  private term = 0;
  /** The time of the owner's last message, or of the first request that waits for an owner. */
  private lastMessageAt = 0;
  /** The least difference by which the owner's clock is ahead. */
  private clockOffset = 0;
  /** Whether the owner sent its clock in answer to a query, and not some time before the message arrived. */
  private isClockKnown = false;

  constructor(client: number, port: RequestQueuePort) {
    this.client = client;
    this.port = port;
  }

  /** Whether the present owner has left more than one query unanswered since its last message. */
  get isOwnerUnresponsive(): boolean {
    return this.round > this.answeredRound + 1;
  }

  /** The number of requests without an answer. */
  get waiting(): number {
    return this.pending.size;
  }

  /** Makes a request and returns its number. The next `flush` sends it. */
  request(request: NewRequest, now: number): number {
    if (this.pending.size === 0) this.lastMessageAt = now;
    this.lastId += 1;
    const id = this.lastId;
    const { call, args, writes, deadline, settle } = request;
    // Spelled out: a spread object makes later operations on it slow.
    this.pending.set(id, {
      call,
      args,
      writes,
      deadline,
      settle,
      id,
      write: 0,
      after: 0,
      owner: undefined,
      round: 0,
      sent: false,
      hangs: 0,
    });
    return id;
  }

  /** Sends the requests that were not sent yet, or have to be sent again, to the owner if there is one. */
  flush(isLast?: boolean): void {
    const { owner } = this;
    if (owner === undefined || ((this.blockingWatches.size > 0 || !this.isClockKnown) && !isLast))
      return;
    const batch: Pending[] = [];
    let open = 0;
    let isFull = false;
    for (const request of this.pending.values()) {
      if (request.owner === undefined) {
        // A request that an owner may have hung in goes alone, so that a second hang can be attributed to it.
        isFull ||= batch.length === MAX_BATCH || (request.hangs === 1 && batch.length > 0);
        if (!isFull) batch.push(request);
        isFull ||= request.hangs === 1;
      } else if (request.write > 0) open += 1;
    }
    if (open > WINDOW_WRITES || batch.length === 0) return;
    for (const request of batch) this.markSent(request, owner);
    try {
      this.port.post(owner, this.batchOf(batch));
    } catch {
      // One of the requests cannot be cloned. The others are sent without it.
      for (const request of batch) {
        try {
          this.port.post(owner, this.batchOf([request]));
        } catch (thrown) {
          this.end(request, { thrown });
        }
      }
    }
  }

  /** Ends a request that its caller has cancelled; `settlement`, if given, is passed to the caller. */
  cancel(id: number, settlement?: Settlement): void {
    const request = this.pending.get(id);
    if (request !== undefined) this.end(request, settlement);
  }

  /** Handles a message from any owner. */
  receive(message: ToClient, now: number): void {
    switch (message.type) {
      case "responses":
        this.receiveResponses(message, now);
        break;
      case "resigned":
        if (message.hung) this.markSuspects(message);
        this.ownerLost(message.owner);
        break;
      case "resend":
        if (message.owner === this.owner) this.resendSentBefore(this.round + 1, now);
        break;
      case "owner":
        this.ownerAnnounced(message, now);
        break;
    }
  }

  /** Forgets the owner with this name. Has no effect if it is not the present owner. */
  ownerLost(owner: string | undefined): void {
    if (this.owner === owner) this.owner = undefined;
  }

  /**
   * Marks the requests that an owner had when it hung. A possible cause is tried once more, and a request that
   * hung twice is not.
   */
  private markSuspects({ owner, retriedHung }: OwnerResignation): void {
    for (const request of this.pending.values()) {
      if (request.owner !== owner || request.call !== "call") continue;
      const wasRetried =
        retriedHung?.client === this.client && retriedHung.ids.includes(request.id);
      request.hangs = wasRetried ? 2 : Math.max(request.hangs, 1);
    }
  }

  /** Sends a message without an answer to the owner, if there is one. */
  send(message: OneWayMessage): void {
    if (this.owner !== undefined) this.port.post(this.owner, { ...message, client: this.client });
  }

  /** Called when a watch has begun, was refused, or has been closed. */
  unblock(watch: number): void {
    if (this.blockingWatches.delete(watch)) this.flush();
  }

  private ownerAnnounced({ owner, client, round, at }: OwnerAnnouncement, now: number): void {
    const changed = this.owner !== owner;
    if (changed) {
      this.term += 1;
      this.clockOffset = at - now;
      this.isClockKnown = false;
    }
    this.owner = owner;
    this.updateClock(at, now);
    if (client === this.client) this.isClockKnown = true;
    else if (changed) this.port.post(owner, this.ownerQuery());
    // The owner has seen every message that was posted before the query, and has not answered the requests in
    // them.
    this.answeredRound = this.round;
    this.resendSentBefore(changed ? this.round + 1 : client === this.client ? round : 0, now);
  }

  /** Ends expired requests, and queries an owner that does not respond. To be called from time to time. */
  tick(now: number): void {
    this.endAll(({ deadline, sent }) =>
      now < deadline + (sent ? GRACE_MS : 0)
        ? undefined
        : { noAnswer: sent ? "unknown" : "never-sent" },
    );
    if (this.pending.size === 0 || now < this.lastMessageAt + OWNER_QUERY_MS) return;
    this.lastMessageAt = now;
    this.findOwner();
  }

  /** Asks who the owner is. */
  findOwner(): void {
    this.round += 1;
    this.port.findOwner(this.ownerQuery());
  }

  private ownerQuery(): OwnerQuery {
    return { type: "find-owner", round: this.round, client: this.client };
  }

  /** Refines the estimate of the owner's clock. The message with the shortest delay is the closest. */
  private updateClock(at: number, now: number): void {
    this.clockOffset = Math.max(this.clockOffset, at - now);
  }

  /** Ends the requests for which `settlement` returns a value, because the client cannot go on. */
  endAll(settlement: (request: Readonly<Pending>) => Settlement | undefined): void {
    for (const request of [...this.pending.values()]) {
      const result = settlement(request);
      if (result !== undefined) this.end(request, result);
    }
  }

  private receiveResponses(
    { answers, owner, term = this.term, at }: ResponseBatch,
    now: number,
  ): void {
    if (term !== this.term) return;
    if (owner === this.owner) {
      this.updateClock(at, now);
      this.lastMessageAt = now;
      this.answeredRound = this.round;
    }
    for (const { id, outcome } of answers) {
      const request = this.pending.get(id);
      if (request !== undefined) this.end(request, outcome, true);
    }
    // Requests beyond the window may have waited for these answers.
    this.flush();
  }

  /** Ends a request that was answered or given up. */
  private end(request: Pending, settlement?: Settlement, answered?: boolean): void {
    this.pending.delete(request.id);
    if (answered) this.writes.delete(request.write);
    else if (request.write > 0) this.writes.set(request.write, undefined);
    if (settlement !== undefined) request.settle(settlement);
  }

  /** Sends the requests from before that round again, and all that follow, so that no owner misses a write. */
  private resendSentBefore(round: number, now: number): void {
    this.lastMessageAt = now;
    if (this.owner === undefined) return;
    let isResent = false;
    for (const request of this.pending.values()) {
      isResent ||= request.owner === undefined || request.round < round;
      if (isResent) request.owner = undefined;
    }
    this.flush();
  }

  /** Marks the request as sent to this owner. */
  private markSent(request: Pending, owner: string): void {
    request.owner = owner;
    request.round = this.round;
    if (request.sent) return;
    request.sent = true;
    request.after = this.lastWrite;
    if (!request.writes) return;
    this.lastWrite += 1;
    request.write = this.lastWrite;
    this.writes.set(request.write, request);
  }

  /** The message for these requests. Numbers of writes that were given up take their places among them. */
  private batchOf(batch: readonly Pending[]): RequestBatch {
    const voids: number[] = [];
    let oldest: number | undefined;
    for (const [number, request] of this.writes) {
      if (request !== undefined) oldest ??= number;
      // An abandoned write with no pending write before it needs no place: owners skip it.
      else if (oldest === undefined) this.writes.delete(number);
      else voids.push(number);
    }
    oldest ??= this.lastWrite + 1;
    const requests: Request[] = [];
    for (const { id, write, after, deadline, call, args, hangs } of batch) {
      for (; voids[0]! <= after; voids.shift()) {
        const number = voids[0]!;
        requests.push({ id: 0, write: number, after: number - 1, deadline: 0, call: "", args: [] });
      }
      requests.push({
        id,
        write,
        after,
        deadline: deadline + this.clockOffset,
        call,
        args,
        hangCount: hangs,
      });
    }
    const { build, term, client } = this;
    return { type: "requests", build, term, client, acknowledged: oldest - 1, requests };
  }
}
