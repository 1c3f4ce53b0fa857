/**
 * Clients, owners that crash, and a network that loses, repeats and reorders messages: all in one thread and
 * without a clock, so that every order of events can be tried.
 */

import {
  buffersOf,
  buildName,
  type ChangeListener,
  type ClientRecordStore,
  compareBuilds,
  KeptRows,
  type OwnerQuery,
  PackedRows,
  type Reply,
  type Request,
  type RequestBatch,
  RequestLog,
  RequestQueue,
  type RowsListener,
  type Settlement,
  Subscriptions,
  type ToClient,
  type ToOwner,
  WATCH_LEASE_MS,
  type Watch,
  WatchList,
  type WatchUpdate,
} from "varve/protocol";

/** Longer than an owner may be silent, and shorter than any deadline. */
const A_WHILE_MS = 500;

/** Later than every deadline, and than the lease of client records. */
const TOO_LONG_MS = 100_000;

const TIMEOUT_MS = 30_000;

/** The offset of each owner's clock from the one before, alternately ahead and behind, and of a reader's. */
const APART_MS = 700_000;
const READER_BEHIND_MS = -300_000;

/** How often each fault may occur in one run. */
export interface Budget {
  readonly crashes: number;
  readonly resignations: number;
  readonly drops: number;
  readonly doubles: number;
  readonly whiles: number;
  readonly ages: number;
  readonly giveUps: number;
  /** A tab of a newer build makes the owner resign. */
  readonly deploys: number;
  /** A service worker announces that it reads the file while there is no owner. */
  readonly readers: number;
  /** The owner's watches all expire, because the machine, or every page, was suspended. */
  readonly sleeps: number;
  /** A client renews its watches. */
  readonly renewals: number;
}

/**
 * The requests of a client: writes (`w`), reads (`r`), watches of keys (`v`) and of rows (`l`), with those of one turn
 * in one string.
 */
export type Program = readonly string[];

/** The writes in order, and every client's record. */
interface Disk {
  log: string[];
  records: Map<number, Uint8Array>;
  /** The last version of the application that has owned it. */
  version: number;
}

function copy({ log, records, version }: Disk): Disk {
  return { log: [...log], records: new Map(records), version };
}

function build(version: number): string {
  return buildName(version, "");
}

class Owner implements ClientRecordStore {
  readonly id: string;
  readonly requestLog: RequestLog;
  /** The state of a watch is the length of the log that was reported to it. */
  readonly watched: Subscriptions<{ reported: number }>;
  /** Whether it has resigned: it still exists, and no longer has the file. */
  retired: boolean;
  disk: Disk;
  /** The time by its own clock. */
  now: number;
  /** The offset of its clock behind the clock of the world; no two realms have the same. */
  readonly behind: number;
  /** The build of the client that it works for. */
  asker: string;
  readonly build: string;
  private readonly clients_: readonly ModelClient[];
  private readonly outbox: [client: number, seen: WatchUpdate][];
  /** The time by which its clock has jumped ahead of all others. */
  ahead: number;

  constructor(
    id: string,
    disk: Disk,
    version: number,
    clients: readonly ModelClient[],
    nextEpoch: () => number,
    behind = READER_BEHIND_MS,
  ) {
    this.id = id;
    this.behind = behind;
    this.disk = { ...copy(disk), version };
    this.build = build(version);
    this.asker = "";
    this.clients_ = clients;
    this.requestLog = new RequestLog(this);
    this.watched = new Subscriptions(id, nextEpoch);
    this.outbox = [];
    this.ahead = 0;
    this.retired = false;
    this.now = 0;
  }

  /** Begins a watch, or renews it if its client has missed nothing. Returns its messages. */
  watch(watch: Watch, now: number) {
    const { watched, outbox } = this;
    const { log } = this.disk;
    const respond = (seen: WatchUpdate) => void outbox.push([watch.client, seen]);
    const at = now + this.ahead;
    if (!watched.renew(watch, respond, at)) {
      const rows = watch.rows && rowsOf(log, 0);
      watched.begin(watch, respond, at, { reported: log.length }, changesOf(log, 0), rows);
    }
    return outbox.splice(0);
  }

  /** The changes not yet reported to watches: each write has a key of its own. */
  notifications(now: number) {
    const { watched, outbox } = this;
    const { log } = this.disk;
    watched.endLapsed(now + this.ahead);
    for (const one of watched) {
      const { reported } = one.state;
      const rows = one.watch.rows && rowsOf(log, reported);
      watched.notify(one, changesOf(log, reported), rows);
      one.state.reported = log.length;
    }
    return outbox.splice(0);
  }

  atomically<T>(body: () => T): T {
    return body();
  }

  perform({ call, args, deadline }: Request): unknown {
    const [tag, lapses] = args as [string, number];
    if (this.now >= deadline || this.now + this.behind >= lapses) {
      this.disk.log.push(`${tag} is late`);
    }
    if (this.asker !== this.build) this.disk.log.push(`${tag} is another build's, which is late`);
    if (call === "write") this.disk.log.push(tag);
    return call === "write" ? this.disk.log.length : packed(this.disk.log);
  }

  load(client: number): Uint8Array | undefined {
    return this.disk.records.get(client);
  }

  save(client: number, record: Uint8Array): void {
    this.disk.records.set(client, record);
  }

  clients(): number[] {
    return this.clients_.map(({ number }) => number).filter((one) => this.disk.records.has(one));
  }

  forget(client: number): void {
    this.disk.records.delete(client);
  }

  wire(error: unknown) {
    return { name: "Error", message: String(error) };
  }
}

/** The log as the answer of a read, in a buffer that is large enough to be transferred: its length comes first. */
function packed(log: readonly string[]): PackedRows {
  const bytes = new Uint8Array(4_096);
  const { written } = encoder.encodeInto(log.join(), bytes.subarray(2));
  bytes.set([written & 255, written >> 8]);
  return new PackedRows([bytes.buffer], "bytes", undefined);
}

/** The rows of the log from a position on: the value of each is its key and its position. */
function rowsOf(log: readonly string[], from: number) {
  return {
    keys: "text" as const,
    values: packed(log.map((tag, i) => `${tag}@${i + 1}`).slice(from)),
  };
}

/** The log that was read. A buffer that was transferred before has no content. */
function unpacked({ parts: [buffer] }: PackedRows): string[] {
  if (buffer?.byteLength !== 4_096) throw new Error("an answer's buffer was sent twice");
  return contentOf(buffer).split(",");
}

function contentOf(buffer: ArrayBuffer): string {
  const [low = 0, high = 0] = new Uint8Array(buffer, 0, 2);
  return decoder.decode(new Uint8Array(buffer, 2, low + 256 * high));
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** A message as it arrives: a port transfers its buffers, and a channel, which may repeat it, copies them. */
function arrived(message: ToClient, isRepeated: boolean): ToClient {
  if (message.type !== "responses" && message.type !== "changes") return message;
  return structuredClone(message, { transfer: isRepeated ? [] : buffersOf(message) });
}

/** The keys and versions in the log from a position on. */
function changesOf(log: readonly string[], from: number) {
  return log.map((tag, i) => [tag, i + 1] as const).slice(from);
}

const READER = "reader";

/** Reads, and refuses writes. Its records are not kept. */
class Reader extends Owner {
  override perform(request: Request): unknown {
    if (request.write > 0) throw new Error("there is no owner");
    return super.perform(request);
  }

  override save(): void {}
}

interface Asked {
  readonly tag: string;
  readonly writes: boolean;
  readonly id: number;
  /** The client's writes that were requested before it. */
  readonly before: readonly string[];
  /** The keys reported to the watches that began before it. */
  readonly reported: readonly ReadonlySet<unknown>[];
  ending: Settlement | "given up" | undefined;
}

class ModelClient {
  readonly number: number;
  readonly sender: RequestQueue;
  readonly watches: WatchList;
  readonly received: Set<unknown>[];
  /** The contents known to each watch. */
  readonly known: Map<string, readonly [key: unknown, version: number]>[];
  /** The rows kept by each watch of rows. */
  readonly kept: KeptRows[];
  readonly asked: Asked[];
  turn: number;
  readonly version: number;
  private readonly program: Program;

  constructor(number: number, program: Program, version: number, world: World) {
    this.number = number;
    this.version = version;
    this.program = program;
    this.sender = new RequestQueue(number, {
      post: (owner, message) => world.send({ to: owner, message }),
      findOwner: (message) => world.broadcast({ to: "", message }),
    });
    this.sender.build = build(version);
    this.watches = new WatchList(this.sender);
    this.received = [];
    this.known = [];
    this.kept = [];
    this.asked = [];
    this.turn = 0;
  }

  get isDone(): boolean {
    return this.turn === this.program.length;
  }

  /** Makes the next requests of its program. */
  ask(now: number): void {
    this.request(this.program[this.turn] as string, now);
    this.turn += 1;
  }

  request(kinds: string, now: number): void {
    for (const kind of kinds) {
      if (kind === "v" || kind === "l") {
        if (kind === "v") this.watch();
        else this.watchRows();
        continue;
      }
      const tag = `${this.number}:${this.asked.length}`;
      const writes = kind === "w";
      const before = this.asked.filter((one) => one.writes).map((one) => one.tag);
      const one: { -readonly [K in keyof Asked]: Asked[K] } = {
        tag,
        writes,
        id: 0,
        before,
        reported: [...this.received],
        ending: undefined,
      };
      const settle = (ending: Settlement) => {
        if (one.ending !== undefined) throw new Error(`${tag} has ended twice`);
        one.ending = ending;
      };
      const call = writes ? "write" : "read";
      const deadline = now + TIMEOUT_MS;
      one.id = this.sender.request({ call, args: [tag, deadline], writes, deadline, settle }, now);
      this.asked.push(one);
    }
    this.sender.flush();
  }

  private watch(): void {
    const reported = new Set();
    this.received.push(reported);
    const onChanges: ChangeListener = (changes, isFirst) => {
      for (const { key } of isFirst ? [] : changes) reported.add(key);
    };
    const [client, collection, range] = [0, undefined, {}];
    const onEnd = (reason?: unknown) => {
      if (reason !== undefined) throw reason;
    };
    const known = new Map();
    this.known.push(known);
    this.watches.add({ client, collection, range, onChanges, onEnd, knownVersions: known });
  }

  private watchRows(): void {
    const reported = new Set();
    this.received.push(reported);
    const kept = new KeptRows(false);
    this.kept.push(kept);
    let isFirst = true;
    const onChanges: RowsListener = (update) => {
      const values = unpacked(update.rows.values as PackedRows).filter((value) => value !== "");
      kept.apply(update, values);
      for (const [tag] of isFirst ? [] : update.changes) reported.add(tag);
      isFirst = false;
      // Each state is as of one moment: all that was written before, and each at its position.
      const shown = kept.list() as string[];
      const parts = shown.map((value) => value.split("@"));
      const positions = parts.map(([, position]) => Number(position)).sort((a, b) => a - b);
      const tags = parts.map(([tag]) => tag);
      if (
        positions.some((position, i) => position !== i + 1) ||
        [...tags].sort().join() !== tags.join()
      ) {
        throw new Error(`rows of two moments: ${shown.join(" ")}`);
      }
    };
    const [client, collection, range, rows] = [0, undefined, {}, []] as const;
    const onEnd = (reason?: unknown) => {
      if (reason !== undefined) throw reason;
    };
    const knownVersions = new Map();
    this.watches.add({ client, collection, range, rows, onChanges, onEnd, knownVersions });
  }

  receive(message: ToClient, now: number): void {
    const { owner } = this.sender;
    this.sender.receive(message, now);
    if (message.type === "changes" && message.owner === owner) this.watches.receive(message);
    if (message.type === "owner") this.watches.renew(message.owner !== owner);
  }
}

interface Packet {
  readonly to: string | number;
  readonly message: ToOwner | ToClient;
}

/** An event that may happen next. */
interface Event {
  readonly name: string;
  /** Its position among all events of its world. */
  readonly number: number;
  happen(): void;
}

/** The clients, the owners, the network and the disk. */
export class World {
  private now: number;
  private readonly clients: ModelClient[];
  private readonly owners: Owner[];
  private network: Packet[];
  private disk: Disk;
  private readonly versions: readonly number[];
  /** The earliest version that may still own the file: all earlier ones know of a newer one. */
  private earliest = 0;
  private budget: { -readonly [K in keyof Budget]: Budget[K] };
  private lastEpoch = 0;
  private isLossy = false;

  /**
   * `versions`: the version of each client, followed by those of further tabs that make no requests; 1 for all
   * by default. The first owner has the lowest.
   */
  constructor(programs: readonly Program[], budget: Budget, versions: readonly number[] = []) {
    this.now = 1_000_000;
    this.clients = [];
    this.owners = [];
    this.network = [];
    this.disk = { log: [], records: new Map(), version: 0 };
    this.budget = { ...budget };
    this.versions = [...new Set(versions.length === 0 ? [1] : versions)];
    programs.forEach((program, i) => {
      this.clients.push(new ModelClient(i + 1, program, versions[i] ?? 1, this));
    });
    this.appear(Math.min(...this.versions));
  }

  /** Messages to a crashed owner are dropped. */
  send(packet: Packet): void {
    const { to } = packet;
    if (typeof to === "number" || to === READER || this.owners.some(({ id }) => id === to)) {
      this.network.push(packet);
    }
  }

  broadcast({ message }: Packet): void {
    for (const { id } of this.owners) this.send({ to: id, message });
  }

  /** The event with this number. */
  event(number: number): Event {
    return this.allEvents()[number] as Event;
  }

  /** The events that may happen next, without those of packets that equal an earlier one. */
  events(): Event[] {
    const seen = new Set<string>();
    const repeated = this.network.map((packet) => {
      const text = key(packet);
      const isRepeated = seen.has(text);
      seen.add(text);
      return isRepeated;
    });
    return this.allEvents().filter(({ ofPacket }) => !repeated[ofPacket]);
  }

  /** All events. Packets are not compared, which takes most of the time. */
  private allEvents(): (Event & { ofPacket: number })[] {
    const { budget } = this;
    const events: (Event & { ofPacket: number })[] = [];
    let ofPacket = -1;
    const may = (name: string, left: keyof Budget | undefined, happen: () => void) => {
      if (left !== undefined && budget[left] === 0) return;
      const all = () => {
        if (left !== undefined) budget[left] -= 1;
        happen();
      };
      events.push({ name, number: events.length, happen: all, ofPacket });
    };
    this.network.forEach((packet, i) => {
      ofPacket = i;
      const name = `${packet.message.type} to ${packet.to}`;
      may(name, undefined, () => this.deliver(this.take(i)));
      may(`${name} is lost`, "drops", () => {
        this.isLossy = true;
        this.take(i);
      });
      may(`${name}, and again`, "doubles", () => this.deliver(packet, undefined, true));
      if (packet.message.type !== "requests" || packet.to !== this.owner?.id) return;
      may(`${name}, which crashes before it commits`, "crashes", () =>
        this.deliver(this.take(i), "before"),
      );
      may(`${name}, which crashes after it has committed`, "crashes", () =>
        this.deliver(this.take(i), "after"),
      );
    });
    ofPacket = -1;
    const { owner } = this;
    if (owner === undefined) {
      // An owner of an earlier build than the last one finds that in the file, and resigns.
      for (const version of this.versions.filter(
        (one) => one >= Math.max(this.disk.version, this.earliest),
      )) {
        may(`another owner, of version ${version}`, undefined, () => this.appear(version));
      }
      may("a service worker reads", "readers", () => this.announce(this.readerHere(0, 0)));
    } else {
      if (this.versions.some((version) => compareBuilds(owner.build, build(version)) === "newer")) {
        may("the owner learns of a newer build", "deploys", () => this.retire());
      }
      may("the owner's clock jumps ahead", "sleeps", () => {
        owner.ahead += WATCH_LEASE_MS + 1;
      });
      may("the owner crashes", "crashes", () => this.crash());
      may("the owner resigns", "resignations", () => this.retire());
    }
    for (const client of this.clients) {
      if (!client.isDone) may(`${client.number} asks`, undefined, () => client.ask(this.now));
      if (client.received.length > 0) {
        may(`${client.number} renews its watches`, "renewals", () =>
          client.watches.renew(false, true),
        );
      }
      const open = client.asked.find(({ ending }) => ending === undefined);
      if (open !== undefined) {
        may(`${client.number} gives up ${open.tag}`, "giveUps", () => {
          client.sender.cancel(open.id);
          open.ending = "given up";
        });
      }
    }
    if (this.clients.some(({ sender }) => sender.waiting > 0)) {
      may("a while", "whiles", () => this.wait(A_WHILE_MS));
      may("too long", "ages", () => this.wait(TOO_LONG_MS));
    }
    return events;
  }

  /** Stops all timers. */
  close(): void {
    for (const { watches } of this.clients) watches.stop();
  }

  /** Runs to the end without further faults. Throws if a request never ends. */
  finish(): void {
    this.settle();
    if (this.clients.some(({ received }) => received.length > 0)) {
      // Further requests find the present owner, and watches are renewed in the end.
      for (const client of this.clients) client.request("r", this.now);
      this.settle();
      // Without a lost message, every change is reported without a renewal.
      if (!this.isLossy) this.check(true);
      for (const { watches } of this.clients) watches.renew(false, true);
      this.settle();
    }
    this.check(true);
  }

  private settle(): void {
    for (let steps = 0; !this.isOver(); steps += 1) {
      if (steps > 1_000) throw new Error("requests hang");
      if (this.owner === undefined) this.appear(Math.max(...this.versions));
      for (const client of this.clients) if (!client.isDone) client.ask(this.now);
      while (this.network.length > 0) this.deliver(this.take(0));
      if (!this.isOver()) this.wait(A_WHILE_MS);
    }
    while (this.network.length > 0) this.deliver(this.take(0));
  }

  /** Throws unless all invariants hold. */
  check(isEnd = false): void {
    const { log } = this.disk;
    const late = log.find((tag) => tag.endsWith("late"));
    if (late !== undefined) throw new Error(`${late}, and was done`);
    if (new Set(log).size !== log.length) throw new Error(`applied twice: ${log.join(" ")}`);
    for (const { asked, kept, known, number } of this.clients) {
      for (const one of isEnd ? kept : []) {
        const there = one.list().map((value) => String(value).split("@")[0]);
        if (there.join() !== [...log].sort().join()) {
          throw new Error(`rows of ${number} are ${there.join(" ")}, of ${log.join(" ")}`);
        }
      }
      for (const one of isEnd ? known : []) {
        const there = [...one.values()].map(([key]) => key);
        if (there.sort().join() !== [...log].sort().join()) {
          throw new Error(`a watch of ${number} knows ${there.join(" ")}, of ${log.join(" ")}`);
        }
      }
      const own = asked.filter(({ tag }) => log.includes(tag)).map(({ tag }) => tag);
      const inLog = log.filter((tag) => own.includes(tag));
      if (own.join() !== inLog.join()) throw new Error(`out of order: ${log.join(" ")}`);
      for (const one of asked) checkOne(one, log, isEnd);
    }
  }

  /** A text that is equal for worlds with the same possible futures. */
  key(): string {
    const { now, clients, owners, network, disk, budget, earliest, lastEpoch, isLossy } = this;
    const packets = network.map(key).sort();
    return key({ now, clients, owners, packets, disk, budget, earliest, lastEpoch, isLossy });
  }

  private get owner(): Owner | undefined {
    return this.owners.find(({ retired }) => !retired);
  }

  private isOver(): boolean {
    return this.clients.every(({ isDone, sender }) => isDone && sender.waiting === 0);
  }

  private take(index: number): Packet {
    const [packet] = this.network.splice(index, 1);
    return packet as Packet;
  }

  private appear(version: number): void {
    const count = this.owners.length;
    const behind = (count % 2 === 0 ? -1 : 1) * (count + 1) * APART_MS;
    const { disk, clients, nextEpoch } = this;
    const owner = new Owner(`o${count}`, disk, version, clients, nextEpoch, behind);
    this.owners.push(owner);
    owner.requestLog.forgetExpired(this.now - behind, this.now);
    this.disk = copy(owner.disk);
    this.announce(this.here(owner, 0, 0));
  }

  private here({ id, behind }: Pick<Owner, "id" | "behind">, client: number, round: number) {
    return { type: "owner", owner: id, client, round, at: this.now - behind } as const;
  }

  private readerHere(client: number, round: number) {
    return this.here({ id: READER, behind: READER_BEHIND_MS }, client, round);
  }

  private readonly nextEpoch = () => {
    this.lastEpoch += 1;
    return this.lastEpoch;
  };

  private announce(message: ToClient): void {
    for (const { number } of this.clients) this.send({ to: number, message });
  }

  /** Removes the owner. Messages to it are dropped. */
  private crash(): void {
    const owner = this.owner as Owner;
    this.owners.splice(this.owners.indexOf(owner), 1, gone(this.owners.length));
    this.network = this.network.filter(({ to }) => to !== owner.id);
  }

  private retire(): void {
    const { owner } = this;
    if (owner === undefined) return;
    owner.retired = true;
    this.announce({ type: "resigned", owner: owner.id });
  }

  private wait(ms: number): void {
    this.now += ms;
    for (const { sender } of this.clients) sender.tick(this.now);
  }

  private deliver({ to, message }: Packet, crashes?: "before" | "after", isRepeated = false): void {
    if (typeof to === "number") {
      this.clients[to - 1]?.receive(arrived(message as ToClient, isRepeated), this.now);
      this.askReader();
      return;
    }
    if (to === READER) {
      if (message.type === "requests") this.readFor(message);
      if (message.type === "watch") this.watchFor(message);
      return;
    }
    const owner = this.owners.find(({ id }) => id === to);
    if (owner === undefined) return;
    if (owner.retired) {
      if (message.type === "requests" || message.type === "watch")
        this.send({ to: message.client, message: { type: "resigned", owner: to } });
    } else if (message.type === "find-owner") {
      const { client, round } = message;
      this.send({ to: client, message: this.here(owner, client, round) });
    } else if (message.type === "watch") {
      for (const [to, seen] of owner.watch(message, this.now)) this.send({ to, message: seen });
    } else if (message.type === "requests") {
      this.handle(owner, message, crashes);
    }
  }

  /**
   * Answers queries to a service worker at once, since its clients are in the same realm. With an owner it is
   * silent.
   */
  private askReader(): void {
    const asks = ({ to, message }: Packet) => to === READER && message.type === "find-owner";
    const asked = this.network.filter(asks);
    this.network = this.network.filter((packet) => !asks(packet));
    for (const { message } of this.owner === undefined ? asked : []) {
      const { client, round } = message as OwnerQuery;
      this.clients[client - 1]?.receive(this.readerHere(client, round), this.now);
    }
  }

  /** A service worker sends the contents of a watch, and reports no changes. */
  private watchFor(watch: Watch): void {
    const { client: to } = watch;
    if (this.owner !== undefined) {
      this.send({ to, message: { type: "resigned", owner: READER } });
      return;
    }
    const { disk, clients, nextEpoch } = this;
    const reader = new Reader(READER, disk, disk.version, clients, nextEpoch);
    for (const [, message] of reader.watch(watch, this.now)) this.send({ to, message });
  }

  /** A service worker answers, unless there is an owner. */
  private readFor(ask: RequestBatch): void {
    const { client: to } = ask;
    if (this.owner !== undefined) {
      this.send({ to, message: { type: "resigned", owner: READER } });
      return;
    }
    const version = Number(ask.build.split(".")[0]);
    const reader = new Reader(READER, this.disk, version, this.clients, this.nextEpoch);
    const at = this.now - reader.behind;
    Object.assign(reader, { now: at, asker: ask.build });
    const { answers, resend } = reader.requestLog.handle(ask, at, undefined, this.now);
    if (answers.length > 0) {
      this.send({ to, message: { type: "responses", owner: READER, answers, term: ask.term, at } });
    }
    if (resend) this.send({ to, message: { type: "resend", owner: READER } });
  }

  private handle(owner: Owner, ask: RequestBatch, crashes: "before" | "after" | undefined): void {
    const standing = compareBuilds(owner.build, ask.build);
    if (standing === "newer") {
      // It resigns, and performs no request of the batch.
      this.earliest = owner.disk.version + 1;
      this.retire();
      return;
    }
    const at = this.now - owner.behind;
    owner.now = at;
    owner.asker = ask.build;
    const refusal = standing === "same" ? undefined : { name: "Error", message: "outdated" };
    const { answers, resend }: Reply = owner.requestLog.handle(ask, at, refusal, this.now);
    if (crashes !== "before") this.disk = copy(owner.disk);
    if (crashes !== undefined) {
      this.crash();
      return;
    }
    const { id } = owner;
    for (const [to, message] of owner.notifications(this.now)) this.send({ to, message });
    if (answers.length > 0)
      this.send({ to: ask.client, message: { type: "responses", owner: id, answers, at } });
    if (resend) this.send({ to: ask.client, message: { type: "resend", owner: id } });
  }
}

/** A placeholder for a crashed owner, so that the others keep their numbers. */
function gone(number: number): Owner {
  return Object.assign(Object.create(Owner.prototype) as Owner, {
    id: `crashed${number}`,
    retired: true,
  });
}

function checkOne(one: Asked, log: readonly string[], isEnd: boolean) {
  const { tag, writes, before, reported, ending } = one;
  if (isEnd && writes && log.includes(tag) && reported.some((received) => !received.has(tag))) {
    throw new Error(`${tag} was not reported to a watch that began before it`);
  }
  if (ending === undefined) {
    if (isEnd) throw new Error(`${tag} has no end`);
    return;
  }
  if (ending === "given up") return;
  const there = log.indexOf(tag) + 1;
  if ("value" in ending) {
    const { value } = ending;
    if (writes && value !== there) throw new Error(`${tag} was answered ${value}, and is ${there}`);
    if (writes) return;
    const read = unpacked(value as PackedRows);
    const missing = before.filter((one) => log.includes(one) && !read.includes(one));
    if (missing.length > 0) throw new Error(`${tag} did not see ${missing.join()}`);
  } else if (there > 0 && ("error" in ending || "thrown" in ending)) {
    throw new Error(`${tag} was refused, and applied`);
  } else if (there > 0 && "noAnswer" in ending && ending.noAnswer === "never-sent") {
    throw new Error(`${tag} was never sent, and applied`);
  } else if ("forgotten" in ending) {
    throw new Error(`the answer to ${tag} was not kept`);
  }
}

function key(value: unknown): string {
  return JSON.stringify(value, (name, one) => {
    // The world and the callbacks are the same for every key, so they are left out.
    if (["port", "settle", "clients_", "store", "timer"].includes(name)) return 0;
    if (one instanceof Map || one instanceof Set) return [...one];
    if (one instanceof Uint8Array) return [...one].join();
    if (one instanceof ArrayBuffer) return contentOf(one);
    return one === Number.POSITIVE_INFINITY ? "∞" : one;
  });
}
