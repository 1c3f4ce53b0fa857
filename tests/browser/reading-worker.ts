/** A service worker that only reads bytes that a page sends. */

import { read } from "./reading.js";

read();
