// Reads flags through Flagsmith's SDK for Node, in remote evaluation.
const { DefaultFlag, Flagsmith } = require('flagsmith-nodejs');
const { answer, failure, mapped } = require('./plan.js');

const inDefault = (name) => new DefaultFlag(`default of ${name}`, false);

const pairs = (flags) => Object.fromEntries(flags.allFlags().map((flag) => [flag.featureName, [flag.enabled, flag.value]]));

const told = (flag) => [flag.enabled, flag.value, flag.isDefault];

answer(async (plan) => {
  const client = (options) =>
    new Flagsmith({
      environmentKey: plan.key,
      apiUrl: process.env.FLAGSMITH_API_URL,
      requestRetryDelayMilliseconds: 10,
      ...options,
    });

  // Returns what an application gets if no flags can be fetched: with a default handler, and without one.
  const failing = async (options) => {
    const handled = client({ ...options, defaultFlagHandler: inDefault });
    const bare = client(options);
    return {
      environment: told((await handled.getEnvironmentFlags()).getFlag('max_items')),
      identity: told((await handled.getIdentityFlags('guest-10')).getFlag('max_items')),
      environment_without: await failure(() => bare.getEnvironmentFlags()),
      identity_without: await failure(() => bare.getIdentityFlags('guest-10')),
    };
  };

  const traits = (subject) => {
    const given = Object.entries(subject.traits ?? {});
    return Object.fromEntries(given.map(([name, value]) => [name, subject.transient ? { value, transient: true } : value]));
  };

  const flagsmith = client({});
  const environment = await flagsmith.getEnvironmentFlags();
  const one = environment.getFlag('max_items');

  const counted = client({ enableAnalytics: true });
  const countedFlags = await counted.getIdentityFlags('guest-2');
  const countedValue = [countedFlags.isFeatureEnabled('search_ranking'), countedFlags.getFeatureValue('search_ranking')];
  await counted.analyticsProcessor.flush();

  return {
    environment: pairs(environment),
    one: [one.featureId, one.featureName, one.enabled, one.value, one.isDefault],
    enabled: environment.isFeatureEnabled('dark_mode'),
    value: environment.getFeatureValue('surge_pricing'),
    identities: await mapped(plan.subjects, async (subject) =>
      pairs(await flagsmith.getIdentityFlags(subject.identifier, traits(subject), subject.transient)),
    ),
    // This SDK refuses an empty identifier.
    anonymous: null,
    anonymous_refused: await failure(() => flagsmith.getIdentityFlags('', plan.anonymous.traits, true)),
    unknown: told((await client({ defaultFlagHandler: inDefault }).getEnvironmentFlags()).getFlag('unheard_of')),
    unknown_without: await failure(() => environment.getFlag('unheard_of')),
    wrong_key: await failing({ environmentKey: 'harbour-client-key-of-another' }),
    server_down: await failing({ apiUrl: `${plan.nobody}/api/v1/` }),
    analytics: countedValue,
  };
});
