/** A service worker that only reads bytes that a page sends it. */

import { read } from "./reading.js";

read();
