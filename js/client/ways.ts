/**
 * The ways to owners in other realms. A `BroadcastChannel` that only the addressee listens to always
 * leads there. Where a page can have a `SharedWorker`, that carries a `MessagePort` over, which takes a
 * half of the time; nothing depends on it.
 */

import type { ToClient, ToOwner, Who } from "./messages.js";

/**
 * The shared worker's program. The page of the present owner names it; whoever names it with a port for it
 * has that given to this page. It is written into its address, for no other file is the same one for every
 * tab whatever a bundler does; where a policy forbids that, there is no shared worker. Nothing in it means
 * anything in an address.
 */
const COURIER =
  "data:text/javascript,let owner,at;onconnect=({ports:[page]})=>{page.onmessage=({data,ports})=>" +
  "{if(!ports[0]){owner=data;at=page}else if(data===owner)at.postMessage(0,ports)}}";

/** Between two attempts to get a port over. */
const PATIENCE_MS = 1_000;

interface Port {
  readonly owner: string;
  readonly port: MessagePort;
  /** Whether the owner has spoken through it. */
  isOpen: boolean;
  readonly since: number;
}

/** What becomes of messages that come these ways. */
export interface WaysOut {
  hear(message: ToClient): void;
  /** A port that a client elsewhere has sent to the owner of this page. */
  visit(port: MessagePort): void;
}

/** The ways of one client. */
export class Ways {
  private readonly channel: string;
  private readonly out: WaysOut;
  private readonly all: BroadcastChannel;
  private readonly inbox: BroadcastChannel;
  private box: { readonly owner: string; readonly channel: BroadcastChannel } | undefined;
  private courier: MessagePort | undefined;
  private port: Port | undefined;

  constructor(channel: string, client: number, out: WaysOut) {
    this.channel = channel;
    this.out = out;
    this.all = new BroadcastChannel(channel);
    this.inbox = new BroadcastChannel(`${channel}:${client}`);
    const hear = ({ data }: MessageEvent) => {
      if ((data as ToClient | Who).type !== "who") out.hear(data as ToClient);
    };
    this.all.onmessage = hear;
    this.inbox.onmessage = hear;
  }

  /** To an owner elsewhere. */
  post(owner: string, message: ToOwner): void {
    const { port } = this;
    if (port?.owner === owner && port.isOpen) {
      port.port.postMessage(message);
      return;
    }
    if (this.box?.owner !== owner) {
      this.box?.channel.close();
      this.box = { owner, channel: new BroadcastChannel(`${this.channel}:${owner}`) };
    }
    this.box.channel.postMessage(message);
    this.reach(owner);
  }

  /** Asks all owners that there may be. Whoever has to ask has waited in vain at a port. */
  who(message: Who): void {
    this.drop();
    this.all.postMessage(message);
  }

  /** Whether there is an owner, who has the lock of that name; `undefined` where nobody tells. */
  async isOwned(): Promise<boolean | undefined> {
    const { held } = await navigator.locks.query();
    return held?.some(({ name }) => name === this.channel);
  }

  /** The owner is this page's worker, and is asked for elsewhere. */
  offer(owner: string): void {
    this.carrier()?.postMessage(owner);
  }

  close(): void {
    this.drop();
    this.all.close();
    this.inbox.close();
    this.box?.channel.close();
    this.courier?.close();
  }

  /** Has a port carried to the owner, unless one is there or on its way. */
  private reach(owner: string): void {
    const now = Date.now();
    const { port } = this;
    if (port?.owner === owner && now < port.since + PATIENCE_MS) return;
    this.drop();
    const carrier = this.carrier();
    if (carrier === undefined) return;
    const { port1, port2 } = new MessageChannel();
    const mine: Port = { owner, port: port1, isOpen: false, since: now };
    this.port = mine;
    port1.onmessage = ({ data }) => {
      mine.isOpen = true;
      this.out.hear(data as ToClient);
    };
    carrier.postMessage(owner, [port2]);
  }

  private drop(): void {
    this.port?.port.close();
    this.port = undefined;
  }

  private carrier(): MessagePort | undefined {
    if (this.courier !== undefined || typeof SharedWorker === "undefined") return this.courier;
    try {
      const { port } = new SharedWorker(COURIER, this.channel);
      port.onmessage = ({ ports: [visitor] }) => this.out.visit(visitor as MessagePort);
      this.courier = port;
      return port;
    } catch {
      // Refused, as in sandboxed frames: the channel leads there too.
      return undefined;
    }
  }
}
