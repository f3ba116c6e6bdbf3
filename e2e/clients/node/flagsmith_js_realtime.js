// Follows Flagsmith's realtime updates through its SDK for browsers. The program defines the `window` and the
// `EventSource` that the SDK expects of a browser.
globalThis.window = {};
globalThis.EventSource = require('eventsource').EventSource;
const { createFlagsmithInstance } = require('flagsmith/isomorphic');
const { follow } = require('./plan.js');

follow(async (plan, tell) => {
  const api = process.env.FLAGSMITH_API_URL;
  const flagsmith = createFlagsmithInstance();
  await flagsmith.init({
    environmentID: plan.key,
    api,
    realtime: true,
    eventSourceUrl: new URL('/', api).href,
    onChange: () => tell({ flag: [flagsmith.hasFeature(plan.flag), flagsmith.getValue(plan.flag)] }),
  });
});
