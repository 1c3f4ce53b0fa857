/**
 * The transport between a client and owners in other realms. A `BroadcastChannel` that only the addressee
 * listens to always works. Where a page can have a `SharedWorker`, it passes a `MessagePort` on, which takes
 * half the time (`port-relay.ts`); nothing depends on it.
 */

import { monotonicNow } from "../../util/clock.js";
import type { OwnerQuery, OwnerResignation, ToClient, ToOwner } from "../protocol/messages.js";
import { trusted } from "./trusted-types.js";
import type { Program } from "./worker-messages.js";

/** The least time between two attempts to pass a port to the owner. */
const PORT_RETRY_MS = 1_000;

interface Port {
  readonly owner: string;
  readonly port: MessagePort;
  /** Whether the owner has sent a message through it. */
  isOpen: boolean;
  readonly since: number;
}

/** Receives the messages of a transport. */
export interface TransportListener {
  onOwnerMessage(message: ToClient): void;
  /** A client in another realm waits for the owner and asks for it. */
  onOwnerQuery(): void;
  /** A client in another realm has sent a port to this page's owner. */
  attachPort(port: MessagePort): void;
}

/** The transport of one client. */
export interface Transport {
  /** Sends a message to an owner in another realm. */
  post(owner: string, message: ToOwner): void;
  /**
   * Asks every owner that there may be, or reports that an owner was ended. Also drops the port, because the
   * owner did not answer on it.
   */
  broadcast(message: OwnerQuery | OwnerResignation): void;
  /** Whether a realm holds the owner's lock; `undefined` if the platform does not say. */
  hasOwner(): Promise<boolean | undefined>;
  /** Registers this page's worker as the owner, for which clients in other realms ask. */
  announceOwner(owner: string): void;
  close(): void;
}

/** Whether shared workers are refused. They are not tried again: each refusal may be reported to the site. */
let isRefused = typeof SharedWorker === "undefined";

/**
 * Opens the database's channel of that name and the client's own. `program` is that of this realm's worker.
 *
 * @param client the client's number
 */
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
      // Refused, as in sandboxed frames. The channel works there too.
      isRefused = true;
    }
    return relay;
  };
  /** Passes a port to the owner, unless a port is open or on its way. */
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

/** Whether any realm holds that lock. */
export async function isHeld(name: string): Promise<boolean | undefined> {
  const { held } = await navigator.locks.query();
  return held?.some((lock) => lock.name === name);
}
