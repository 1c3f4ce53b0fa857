/**
 * The client's half of the protocol, without timers, ports or anything else of the outside world.
 *
 * - Requests of one turn are one message. What has no answer is sent again when another owner appears, and
 *   when the present owner has lost it.
 * - Writes are numbered without gaps. A request gets its number when it is first sent. So a request that was
 *   never sent leaves no gap, and it is certain that it was not applied.
 * - Requests made after a new watch are sent once the watch has begun. So their writes are told, whoever is
 *   owner then or later.
 * - Clocks of different realms have nothing in common. A client learns from what an owner says how far that
 *   owner's clock is ahead of its own, and names deadlines by the owner's. What it learns is too little by the
 *   time that the owner's message took, so nothing is done after its deadline.
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
 * How long after its deadline a sent request is given up, in milliseconds. An owner refuses late requests
 * itself, so this is only for an owner that says nothing at all.
 */
export const GRACE_MS = 500;

/** How long an owner may say nothing, in milliseconds, before it is asked whether it is there. */
export const SILENCE_MS = 400;

/** A message holds at most so many requests: what an owner has to remember of it is one record. */
const MAX_BATCH = 4_096;

/** With more unanswered writes than these, the next message waits for answers. */
const WINDOW_WRITES = 512;

/** How a request ends that nobody has answered. */
export type NoAnswer =
  /** No owner has it, and none will apply it. */
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
  /** The time after which nobody applies it, by the same clock as all times that the sender is given. */
  readonly deadline: number;
  /** Called once, with the outcome. */
  readonly settle: (settlement: Settlement) => void;
}

/** What the sender needs of the outside world. */
export interface RequestQueuePort {
  /** Sends a message to that owner; it may get lost. Throws if the message cannot be cloned. */
  post(owner: string, message: ToOwner): void;
  /** Asks all owners that there may be. */
  findOwner(message: OwnerQuery): void;
}

/** A message to an owner that has no answer. */
export type OneWayMessage =
  | Omit<Watch, "client">
  | Omit<Unwatch, "client">
  | Omit<CancelRequest, "client">;

interface Pending extends NewRequest {
  readonly id: number;
  /** Its number among the writes; 0 as long as it was not sent, and for reads. */
  write: number;
  after: number;
  /** To whom it was sent last, and before which round of questions. */
  owner: string | undefined;
  round: number;
  sent: boolean;
  /** As in its request. */
  hangs: number;
}

/** The client's half of the protocol. */
export class RequestQueue {
  /** The owner that was heard last, as long as it is believed to be there. */
  owner: string | undefined;
  /** The build that its messages name as the client's. */
  build = "";
  /** The watches that no owner has answered yet: requests wait for them. */
  readonly blockingWatches: Set<number> = new Set();
  private readonly client: number;
  private readonly port: RequestQueuePort;
  /** What has no answer yet, in the order in which it was asked for. */
  private readonly pending = new Map<number, Pending>();
  /** The numbers of writes that were sent and are not over, in order. `undefined`: given up. */
  private readonly writes = new Map<number, Pending | undefined>();
  private lastId = 0;
  private lastWrite = 0;
  private round = 0;
  private answeredRound = 0;
  /** How many owners were heard of. */
  private term = 0;
  /** When the owner was heard last, or first waited for. */
  private lastHeardAt = 0;
  /** How far the owner's clock is ahead, at least. */
  private clockOffset = 0;
  /** Whether the owner has said that in answer to a question, and not some time before it was heard. */
  private isClockKnown = false;

  constructor(client: number, port: RequestQueuePort) {
    this.client = client;
    this.port = port;
  }

  /** Whether the owner was asked more than once, if it is there, since it was last heard. */
  get isOwnerSilent(): boolean {
    return this.round > this.answeredRound + 1;
  }

  /** The number of requests without an answer. */
  get waiting(): number {
    return this.pending.size;
  }

  /** Makes a request and returns its number. The next `flush` sends it. */
  request(request: NewRequest, now: number): number {
    if (this.pending.size === 0) this.lastHeardAt = now;
    this.lastId += 1;
    const id = this.lastId;
    const { call, args, writes, deadline, settle } = request;
    // Spelled out: what is spread into an object makes all that is done with it slow.
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

  /** Sends to the owner, if there is one, what was not sent yet or has to be sent again. */
  flush(isLast?: boolean): void {
    const { owner } = this;
    if (owner === undefined || ((this.blockingWatches.size > 0 || !this.isClockKnown) && !isLast))
      return;
    const batch: Pending[] = [];
    let open = 0;
    let isFull = false;
    for (const one of this.pending.values()) {
      if (one.owner === undefined) {
        // What an owner may have hung in goes alone, so that it is known if another one does.
        isFull ||= batch.length === MAX_BATCH || (one.hangs === 1 && batch.length > 0);
        if (!isFull) batch.push(one);
        isFull ||= one.hangs === 1;
      } else if (one.write > 0) open += 1;
    }
    if (open > WINDOW_WRITES || batch.length === 0) return;
    for (const one of batch) this.markSent(one, owner);
    try {
      this.port.post(owner, this.batchOf(batch));
    } catch {
      // One of them cannot be cloned: the others are not to suffer for it.
      for (const one of batch) {
        try {
          this.port.post(owner, this.batchOf([one]));
        } catch (thrown) {
          this.end(one, { thrown });
        }
      }
    }
  }

  /** Ends a request that is not wanted any more, with this ending if anybody is to be told. */
  cancel(id: number, settlement?: Settlement): void {
    const one = this.pending.get(id);
    if (one !== undefined) this.end(one, settlement);
  }

  /** Takes a message from any owner. */
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

  /** The owner with this name is not there any more. Has an effect only if it is the present one. */
  ownerLost(owner: string | undefined): void {
    if (this.owner === owner) this.owner = undefined;
  }

  /** An owner hung. What may have been the reason is tried once more, and what surely was not again. */
  private markSuspects({ owner, retriedHung: doing }: OwnerResignation): void {
    for (const one of this.pending.values()) {
      if (one.owner !== owner || one.call !== "call") continue;
      const wasRetried = doing?.client === this.client && doing.ids.includes(one.id);
      one.hangs = wasRetried ? 2 : Math.max(one.hangs, 1);
    }
  }

  /** Sends a message without an answer to the owner, if there is one. */
  send(message: OneWayMessage): void {
    if (this.owner !== undefined) this.port.post(this.owner, { ...message, client: this.client });
  }

  /** A watch was begun or refused, or is not wanted any more. */
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
    // Whoever was asked has seen all that was posted before the question, and has not answered that.
    this.answeredRound = this.round;
    this.resendSentBefore(changed ? this.round + 1 : client === this.client ? round : 0, now);
  }

  /** Call this now and then: it ends what is too late, and asks an owner that is silent. */
  tick(now: number): void {
    this.endAll(({ deadline, sent }) =>
      now < deadline + (sent ? GRACE_MS : 0)
        ? undefined
        : { noAnswer: sent ? "unknown" : "never-sent" },
    );
    if (this.pending.size === 0 || now < this.lastHeardAt + SILENCE_MS) return;
    this.lastHeardAt = now;
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

  /** The owner's clock was there when it sent what is heard now. What took the shortest time is nearest. */
  private updateClock(at: number, now: number): void {
    this.clockOffset = Math.max(this.clockOffset, at - now);
  }

  /** Ends the requests for which `ending` returns an ending, since the client cannot go on. */
  endAll(settlement: (one: Readonly<Pending>) => Settlement | undefined): void {
    for (const one of [...this.pending.values()]) {
      const result = settlement(one);
      if (result !== undefined) this.end(one, result);
    }
  }

  private receiveResponses(
    { answers, owner, term: passing = this.term, at }: ResponseBatch,
    now: number,
  ): void {
    if (passing !== this.term) return;
    if (owner === this.owner) {
      this.updateClock(at, now);
      this.lastHeardAt = now;
      this.answeredRound = this.round;
    }
    for (const { id, outcome } of answers) {
      const one = this.pending.get(id);
      if (one !== undefined) this.end(one, outcome, true);
    }
    // Some may have waited until these were answered.
    this.flush();
  }

  /** It is over: answered, or given up. */
  private end(one: Pending, settlement?: Settlement, answered?: boolean): void {
    this.pending.delete(one.id);
    if (answered) this.writes.delete(one.write);
    else if (one.write > 0) this.writes.set(one.write, undefined);
    if (settlement !== undefined) one.settle(settlement);
  }

  /** Sends again what was sent before that round, and all behind it, so that nobody misses a write. */
  private resendSentBefore(round: number, now: number): void {
    this.lastHeardAt = now;
    if (this.owner === undefined) return;
    let isResent = false;
    for (const one of this.pending.values()) {
      isResent ||= one.owner === undefined || one.round < round;
      if (isResent) one.owner = undefined;
    }
    this.flush();
  }

  /** From now on it counts as sent. */
  private markSent(one: Pending, owner: string): void {
    one.owner = owner;
    one.round = this.round;
    if (one.sent) return;
    one.sent = true;
    one.after = this.lastWrite;
    if (!one.writes) return;
    this.lastWrite += 1;
    one.write = this.lastWrite;
    this.writes.set(one.write, one);
  }

  /** As they travel; between them, in their places, the numbers of writes that were given up. */
  private batchOf(chosen: readonly Pending[]): RequestBatch {
    const voids: number[] = [];
    let oldest: number | undefined;
    for (const [number, one] of this.writes) {
      if (one !== undefined) oldest ??= number;
      // What was given up and has nothing pending before it needs no place: owners leave it out.
      else if (oldest === undefined) this.writes.delete(number);
      else voids.push(number);
    }
    oldest ??= this.lastWrite + 1;
    const requests: Request[] = [];
    for (const { id, write, after, deadline, call, args, hangs } of chosen) {
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
    const { build, term: turn, client } = this;
    return { type: "requests", build, term: turn, client, acknowledged: oldest - 1, requests };
  }
}
