// Who looks, and what they may do. The node decides: this only says so before somebody tries.

import { signal } from "./html.js";

export const me = signal(null);

export const mayChange = () => me.value === null || me.value.is_admin;
export const mayPublish = () => me.value === null || me.value.publishes.length > 0;
/** Why somebody may not; nothing if they may. */
export const notAllowed = (verb = "admin") => `You may only look. The rule '${me.value?.name || "NAME"} ${verb}' would allow it.`;
