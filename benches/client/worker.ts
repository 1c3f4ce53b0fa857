/** The worker of a tab. */

import { serve } from "varve";

export default serve("bench");
