/**
 * The ways to owners in other realms. A `BroadcastChannel` that only the addressee listens to always
 * leads there. Where a page can have a `SharedWorker`, that carries a `MessagePort` over, which takes a
 * half of the time (`port-relay.ts`); nothing depends on it.
 */

import { monotonicNow } from "../../util/clock.js";
import type { OwnerQuery, OwnerResignation, ToClient, ToOwner } from "../protocol/messages.js";
import { trusted } from "./trusted-types.js";
import type { Program } from "./worker-messages.js";

/** Between two attempts to get a port over. */
const PORT_RETRY_MS = 1_000;

interface Port {
  readonly owner: string;
  readonly port: MessagePort;
  /** Whether the owner has spoken through it. */
  isOpen: boolean;
  readonly since: number;
}

/** What becomes of messages that come these ways. */
export interface TransportListener {
  onOwnerMessage(message: ToClient): void;
  /** A client elsewhere asks who the owner is, for it waits. */
  onOwnerQuery(): void;
  /** A port that a client elsewhere has sent to the owner of this page. */
  attachPort(port: MessagePort): void;
}

/** The ways of one client. */
export interface Transport {
  /** To an owner elsewhere. */
  post(owner: string, message: ToOwner): void;
  /** Asks all owners that there may be, or tells all that one is ended. Whoever has to ask has waited in vain at a port. */
  broadcast(message: OwnerQuery | OwnerResignation): void;
  /** Whether there is an owner, who has the lock of that name; `undefined` where nobody tells. */
  hasOwner(): Promise<boolean | undefined>;
  /** The owner is this page's worker, and is asked for elsewhere. */
  announceOwner(owner: string): void;
  close(): void;
}

/** Whether no shared worker can be had. It is not tried again: each refusal may be reported to the site. */
let isRefused = typeof SharedWorker === "undefined";

/** Opens them: the channel of that name, and one of the client's own. The worker of this realm has that program. */
export function openTransport(
  name: string,
  client: number,
  listener: TransportListener,
  program: Program | undefined,
): Transport {
  const all = new BroadcastChannel(name);
  const inbox = new BroadcastChannel(`${name}:${client}`);
  let ownerChannel: { readonly owner: string; readonly channel: BroadcastChannel } | undefined;
  let relay: MessagePort | undefined;
  let ownerPort: Port | undefined;
  all.onmessage = inbox.onmessage = ({ data }: MessageEvent) => {
    if ((data as ToClient | OwnerQuery).type === "find-owner") listener.onOwnerQuery();
    else listener.onOwnerMessage(data as ToClient);
  };
  const closePort = () => {
    ownerPort?.port.close();
    ownerPort = undefined;
  };
  const relayPort = () => {
    if (relay !== undefined || isRefused || program === undefined) return relay;
    try {
      const { url, type } = program;
      relay = new SharedWorker(trusted(url), { name, type }).port;
      relay.onmessage = ({ ports: [visitor] }) => listener.attachPort(visitor as MessagePort);
    } catch {
      // As in sandboxed frames: the channel leads there too.
      isRefused = true;
    }
    return relay;
  };
  /** Has a port carried to the owner, unless one is there or on its way. */
  const sendPort = (owner: string) => {
    const now = monotonicNow();
    if (ownerPort?.owner === owner && now < ownerPort.since + PORT_RETRY_MS) return;
    closePort();
    if (relayPort() === undefined) return;
    const { port1: port, port2 } = new MessageChannel();
    const made: Port = { owner, port, isOpen: false, since: now };
    ownerPort = made;
    port.onmessage = ({ data }) => {
      made.isOpen = true;
      listener.onOwnerMessage(data as ToClient);
    };
    relay?.postMessage(owner, [port2]);
  };
  return {
    post(owner, message) {
      if (ownerPort?.owner === owner && ownerPort.isOpen) {
        ownerPort.port.postMessage(message);
        return;
      }
      if (ownerChannel?.owner !== owner) {
        ownerChannel?.channel.close();
        ownerChannel = { owner, channel: new BroadcastChannel(`${name}:${owner}`) };
      }
      ownerChannel.channel.postMessage(message);
      sendPort(owner);
    },
    broadcast(message) {
      closePort();
      all.postMessage(message);
    },
    hasOwner: () => isHeld(name),
    announceOwner(owner) {
      relayPort()?.postMessage(owner);
    },
    close() {
      closePort();
      for (const one of [all, inbox, ownerChannel?.channel, relay]) one?.close();
    },
  };
}

/** Whether somebody has that lock. */
export async function isHeld(name: string): Promise<boolean | undefined> {
  const { held } = await navigator.locks.query();
  return held?.some((lock) => lock.name === name);
}
