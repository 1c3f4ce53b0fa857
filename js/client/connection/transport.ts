/**
 * The ways to owners in other realms. A `BroadcastChannel` that only the addressee listens to always
 * leads there. Where a page can have a `SharedWorker`, that carries a `MessagePort` over, which takes a
 * half of the time (`port-relay.ts`); nothing depends on it.
 */

import { monotonicNow } from "../../util/clock.js";
import type { Gone, ToClient, ToOwner, Who } from "../protocol/messages.js";
import { trusted } from "./trusted-types.js";
import type { Program } from "./worker-messages.js";

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
  /** A client elsewhere asks who the owner is, for it waits. */
  asked(): void;
  /** A port that a client elsewhere has sent to the owner of this page. */
  visit(port: MessagePort): void;
}

/** The ways of one client. */
export interface Ways {
  /** To an owner elsewhere. */
  post(owner: string, message: ToOwner): void;
  /** Asks all owners that there may be, or tells all that one is ended. Whoever has to ask has waited in vain at a port. */
  who(message: Who | Gone): void;
  /** Whether there is an owner, who has the lock of that name; `undefined` where nobody tells. */
  isOwned(): Promise<boolean | undefined>;
  /** The owner is this page's worker, and is asked for elsewhere. */
  offer(owner: string): void;
  close(): void;
}

/** Whether no shared worker can be had. It is not tried again: each refusal may be reported to the site. */
let isRefused = typeof SharedWorker === "undefined";

/** Opens them: the channel of that name, and one of the client's own. The worker of this realm has that program. */
export function waysOf(
  name: string,
  client: number,
  out: WaysOut,
  program: Program | undefined,
): Ways {
  const all = new BroadcastChannel(name);
  const inbox = new BroadcastChannel(`${name}:${client}`);
  let box: { readonly owner: string; readonly channel: BroadcastChannel } | undefined;
  let courier: MessagePort | undefined;
  let mine: Port | undefined;
  all.onmessage = inbox.onmessage = ({ data }: MessageEvent) => {
    if ((data as ToClient | Who).type === "who") out.asked();
    else out.hear(data as ToClient);
  };
  const drop = () => {
    mine?.port.close();
    mine = undefined;
  };
  const carrier = () => {
    if (courier !== undefined || isRefused || program === undefined) return courier;
    try {
      const { url, type } = program;
      courier = new SharedWorker(trusted(url), { name, type }).port;
      courier.onmessage = ({ ports: [visitor] }) => out.visit(visitor as MessagePort);
    } catch {
      // As in sandboxed frames: the channel leads there too.
      isRefused = true;
    }
    return courier;
  };
  /** Has a port carried to the owner, unless one is there or on its way. */
  const reach = (owner: string) => {
    const now = monotonicNow();
    if (mine?.owner === owner && now < mine.since + PATIENCE_MS) return;
    drop();
    if (carrier() === undefined) return;
    const { port1: port, port2 } = new MessageChannel();
    const made: Port = { owner, port, isOpen: false, since: now };
    mine = made;
    port.onmessage = ({ data }) => {
      made.isOpen = true;
      out.hear(data as ToClient);
    };
    courier?.postMessage(owner, [port2]);
  };
  return {
    post(owner, message) {
      if (mine?.owner === owner && mine.isOpen) {
        mine.port.postMessage(message);
        return;
      }
      if (box?.owner !== owner) {
        box?.channel.close();
        box = { owner, channel: new BroadcastChannel(`${name}:${owner}`) };
      }
      box.channel.postMessage(message);
      reach(owner);
    },
    who(message) {
      drop();
      all.postMessage(message);
    },
    async isOwned() {
      const { held } = await navigator.locks.query();
      return held?.some((lock) => lock.name === name);
    },
    offer(owner) {
      carrier()?.postMessage(owner);
    },
    close() {
      drop();
      for (const one of [all, inbox, box?.channel, courier]) one?.close();
    },
  };
}
