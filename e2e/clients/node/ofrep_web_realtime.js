// Follows OFREP's change events by OpenFeature's provider for browsers, which listens where answers tell it to. Node has
// no means to listen, so it is given one.
globalThis.EventSource = require('eventsource').EventSource;
const { OFREPWebProvider } = require('@openfeature/ofrep-web-provider');
const { OpenFeature, ProviderEvents } = require('@openfeature/web-sdk');
const { follow } = require('./plan.js');

follow(async (plan, tell) => {
  await OpenFeature.setProviderAndWait(
    new OFREPWebProvider({ baseUrl: process.env.OFREP_ENDPOINT, cacheMode: 'disabled' }),
  );
  const client = OpenFeature.getClient();
  const look = () => {
    const { value, errorCode } = client.getBooleanDetails(plan.flag, false);
    tell({ flag: [errorCode ?? value, null] });
  };
  client.addHandler(ProviderEvents.ConfigurationChanged, look);
  look();
});
