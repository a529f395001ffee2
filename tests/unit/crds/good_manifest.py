"""The valid manifest that tests change."""

GOOD = """\
apiVersion: rltraining.dev/v1alpha1
kind: RLTrainingJob
metadata: {name: cartpole}
spec:
  algorithm: {impala: {}}
  environment: {id: CartPole-v1}
  sampler: {replicas: 2}
  stop: {environmentSteps: 2000000, meanReturn: {atLeast: 475, episodes: 100}}
"""
